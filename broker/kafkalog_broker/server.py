"""The broker as a server: everything wired together, started and stopped. One per process and log directory.

server = Server(BrokerConfig.from_properties(properties))
await server.start()       # listeners bound, directories locked and loaded, connections accepted
...
await server.stop()        # requests in work finished, logs flushed and closed, the clean-shutdown marker written
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from kafkalog_broker import api
from kafkalog_broker.admin import topic_changes
from kafkalog_broker.broker import Broker
from kafkalog_broker.clock import Clock
from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.dynamic_configs import DynamicConfigs
from kafkalog_broker.config.listeners import with_bound_ports
from kafkalog_broker.config.sasl_settings import SaslSettings
from kafkalog_broker.coordinators.offsets_topic import OffsetsTopic
from kafkalog_broker.coordinators.shards import load_all
from kafkalog_broker.coordinators.transactions_topic import TransactionsTopic
from kafkalog_broker.groups.group_coordinator import GroupCoordinator
from kafkalog_broker.groups.loading import load as load_groups
from kafkalog_broker.mirror.mirror_file import detach
from kafkalog_broker.net.dispatch import dispatcher
from kafkalog_broker.net.late_timers import LateTimer, sleep
from kafkalog_broker.net.limits import network_limits, raise_open_files_limit
from kafkalog_broker.net.listener import Network
from kafkalog_broker.net.sasl_gate import SaslGate
from kafkalog_broker.security.add_scram import NewUser
from kafkalog_broker.security.scram import Credential
from kafkalog_broker.security.scram_users import ScramUsers
from kafkalog_broker.storage.log_directory import LogDirectories, open_log_dirs
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_broker.storage.producer_ids import ProducerIds
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_broker.transactions.loading import load as load_transactions
from kafkalog_broker.transactions.marker_writer import MarkerWriter
from kafkalog_broker.transactions.transaction_coordinator import TransactionCoordinator
from kafkalog_broker.transactions.transaction_ends import TransactionEnds

_logger = logging.getLogger(__name__)

CERTIFICATES_S = 5.0
"""How often the files of certificates are looked at: one stat each."""

_TICK_S = 1.0
"""How often the log manager and the groups are asked whether something is due; each knows its own intervals."""


class Server(Broker):
    """A broker that can be started. network: its listeners and connections. dirs: the log directories, locked.
    loading: reads the coordinators' topics."""

    network: Network
    dirs: LogDirectories
    loading: asyncio.Task[None]

    def __init__(self, config: BrokerConfig, clock: Clock | None = None, new_users: Sequence[NewUser] = ()) -> None:
        """new_users: users of SCRAM that are to be there; one that is already keeps its password."""
        super().__init__(config, clock)
        self._new_users = new_users
        self.ensure_topic = partial(topic_changes.ensure_topic, self)
        self._started = AsyncExitStack()
        self._open_files = 0

    async def start(self, progress: Callable[[Any], None] | None = None) -> None:
        """Bind the listeners, lock and load the log directories, serve.

        Raises KafkalogError, and then holds nothing: no task, no port, no lock, and a log directory that had been shut
        down cleanly still says so.
        """
        api.load_all()
        async with AsyncExitStack() as started:
            await self._start(started, progress)
            self._started = started.pop_all()

    async def stop(self) -> None:
        """The reverse of `start`. A clean stop: nothing that comes afterwards has to be recovered, but for the log
        directories in `to_recover`."""
        await self._started.aclose()

    @property
    def to_recover(self) -> list[Path]:
        """After `stop`: the log directories that the next start has to recover, since something in them failed."""
        return self.logs.to_recover

    def updating_config(self, config: BrokerConfig) -> Generator[None, None, None]:
        self.network.admission.limits = network_limits(config, self._open_files)
        yield from super().updating_config(config)

    async def _start(self, started: AsyncExitStack, progress: Callable[[Any], None] | None) -> None:
        """Each part pushes its own stop as it starts, so that a failed start and `stop` go one way."""
        started.callback(self.workers.shutdown)
        await self._bind(started)  # first: a port in use is the commonest failure, and nothing was touched yet
        self.dirs = open_log_dirs(self.config.log_dirs, self.node_id, self.clock.now_ms())
        started.callback(self.dirs.close)
        self.cluster_id = self.dirs.cluster_id
        await self._load_logs(started, progress)
        await self._load_users()
        self.tls.use(await self.run_blocking(self.tls.prepared, self.config.listener_security))
        self._make_coordinators(started)
        self.network.admission.limits = network_limits(self.config, self._open_files)
        started.callback(self._report_longest_holds)
        started.push_async_callback(self.network.stop)
        await self.network.serve()
        # Before the network stops: a join that waits for its group would hold its connection for the time of grace.
        started.callback(self.groups.shutdown)
        self.loading = self._run_until_stop(started, self._load_coordinators())
        self.logs.cleaner.start()
        self._run_until_stop(started, self._tick())
        if any(security.tls is not None for security in self.config.listener_security.values()):
            self._run_until_stop(started, self._watch_certificates())

    async def _bind(self, started: AsyncExitStack) -> None:
        self._open_files = raise_open_files_limit()
        self.network = Network(dispatcher(self), network_limits(self.config, self._open_files))
        started.callback(self.network.close_listeners)
        bound = {}
        for listener in self.config.listeners:
            name, security = listener.name, self.config.listener_security[listener.name]
            tls = partial(self.tls.of, name) if security.tls is not None else None
            gate = partial(SaslGate, partial(self._sasl_of, name), self._scram_user) if security.sasl else None
            bound[name] = (await self.network.bind(name, listener.host, listener.port, tls, gate)).port
        self.advertised = with_bound_ports(self.config.advertised_listeners, bound)

    def _sasl_of(self, listener: str) -> SaslSettings:
        sasl = self.config.listener_security[listener].sasl
        assert sasl is not None
        return sasl

    def _scram_user(self, mechanism: str, name: str) -> Credential | None:
        return self.scram_users.find(mechanism, name)

    async def _load_users(self) -> None:
        self.scram_users = ScramUsers([log_dir.path for log_dir in self.dirs.online])
        await self.run_blocking(self.scram_users.load)
        users = self.scram_users.copy()
        new = [user for user in self._new_users if user.name not in users[user.mechanism]]
        for user in new:
            users[user.mechanism][user.name] = user.kept
        if new:
            await self.run_blocking(self.scram_users.save, users)
            self.scram_users.use(users)

    async def _load_logs(self, started: AsyncExitStack, progress: Callable[[Any], None] | None) -> None:
        online = [log_dir.path for log_dir in self.dirs.online]
        for path in online:
            detach(path)
        self.dynamic_configs = DynamicConfigs(online, self.node_id)
        self.dynamic_configs.load()
        self.config = self.config.with_dynamic(self.dynamic_configs.default, self.dynamic_configs.broker)
        self.topics = TopicRegistry(self.dirs.all)
        self.topics.load()
        self.producer_ids = ProducerIds(online, self.workers.run_in_background)
        self.logs = LogManager(
            self.dirs,
            self.config,
            self.topics,
            self.clock,
            call_soon=asyncio.get_running_loop().call_soon_threadsafe,
            run_blocking=self.workers.run_in_background,
            on_all_offline=self.failed.set,
        )
        started.push_async_callback(self.run_blocking, self.logs.shutdown)
        loading = self.workers.begin_blocking(partial(self.logs.load, progress))
        started.push_async_callback(asyncio.wait, [loading])  # a start that is cancelled leaves it running
        started.callback(self.logs.stop_loading)
        await loading
        started.push_async_callback(self.flushes.ended)

    def _make_coordinators(self, started: AsyncExitStack) -> None:
        loop, clock = asyncio.get_running_loop(), self.clock
        self.offsets_topic = offsets = OffsetsTopic(self.config, self.topics, self.log, clock)
        self.groups = GroupCoordinator(
            self.config,
            clock=clock,
            scheduler=lambda delay_ms, call: LateTimer(loop, delay_ms / 1000, call),
            append=offsets.append,
            scan=offsets.scan,
            partition_count=lambda: offsets.partitions,
            owned=offsets.owned,
        )
        self.transactions_topic = state = TransactionsTopic(self.config, self.topics, self.log, clock)
        self.markers = MarkerWriter(self.groups, self.log, clock)
        self.transactions = TransactionCoordinator(
            self.config,
            clock=clock,
            state_log=state,
            write_marker=self.markers.write,
            new_producer_id=self.producer_ids.next,
        )
        self.transaction_ends = TransactionEnds(self.transactions, state, self.log, self.flushes)
        for partition in offsets.owned():
            self.groups.shards.begin_loading(partition)
        for partition in state.owned():
            self.transactions.table.shards.begin_loading(partition)
        started.callback(self.transactions.table.shutdown)
        started.push_async_callback(self.transaction_ends.stop)

    async def _load_coordinators(self) -> None:
        """While the broker serves: transactions first, so that what was prepared is completed soon."""
        offsets, state = self.offsets_topic, self.transactions_topic
        await load_all(
            self.transactions.table.shards, state.owned(), self.run_blocking,
            lambda partition: load_transactions(state.scan(partition)), f"the transactions of {state.name}",
        )  # fmt: skip
        self.transaction_ends.complete_soon()
        await load_all(
            self.groups.shards, offsets.owned(), self.run_blocking,
            lambda partition: load_groups(offsets.scan(partition)), f"the groups of {offsets.name}",
        )  # fmt: skip
        self.transaction_ends.complete_soon()  # those that wait for a group's partition

    def _run_until_stop(self, started: AsyncExitStack, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        started.push_async_callback(asyncio.wait, [task])
        started.callback(task.cancel)
        return task

    async def _tick(self) -> None:
        while True:
            await sleep(_TICK_S)
            now_ms, began = self.clock.now_ms(), perf_counter()
            try:
                self.logs.tick(now_ms)
                self.groups.tick()
                self.transactions.tick(now_ms)
                self.transaction_ends.complete_soon()
            except Exception:
                _logger.exception("a periodic task failed and is tried again")
            self.network.watch.note_named("periodic tasks", perf_counter() - began)

    async def _watch_certificates(self) -> None:
        while True:
            await sleep(CERTIFICATES_S)
            async with self.changes.altering:  # nor are they made anew by a change of configuration meanwhile
                changed = await self.run_blocking(self.tls.changed_files)
                if changed is not None:
                    self.tls.use(changed)

    def _report_longest_holds(self) -> None:
        _logger.info("the longest that requests held the event loop: %s", self.network.watch)
