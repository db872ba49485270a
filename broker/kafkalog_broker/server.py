"""The broker as a server: everything wired together, started and stopped. One per process and log directory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from kafkalog_broker import api
from kafkalog_broker.admin.client_quotas import install_quota_handlers
from kafkalog_broker.admin.share_group_state import initialize_share_partitions
from kafkalog_broker.admin.topic_creation import ensure_topic
from kafkalog_broker.broker import Broker
from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.dynamic_configs import FILE as DYNAMIC_CONFIGS_FILE
from kafkalog_broker.config.dynamic_configs import DynamicConfigs
from kafkalog_broker.config.listener_settings import SaslSettings
from kafkalog_broker.config.listeners import with_bound_ports
from kafkalog_broker.config.log_config import check_remote_storage_enabled
from kafkalog_broker.config.properties import REMOTE_STORAGE
from kafkalog_broker.coordinator.coordinator_log import CoordinatorLog
from kafkalog_broker.coordinator.coordinator_timer import Scheduler, TimerHandle
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.groups.group_coordinator import GroupCoordinator
from kafkalog_broker.groups.modern.group_context import GroupContext, InitializeShared
from kafkalog_broker.groups.modern.group_records import SharedTopic
from kafkalog_broker.groups.modern.group_settings import share_group_settings
from kafkalog_broker.mirror.takeover import take_mirrors_over
from kafkalog_broker.net.acceptor import raise_open_files_limit
from kafkalog_broker.net.dispatch import Dispatch, Gate, SaslGate, dispatcher
from kafkalog_broker.net.listener import Network
from kafkalog_broker.net.loop_watch import LateTimer, sleep
from kafkalog_broker.protocol.api_registry import Layer
from kafkalog_broker.quotas.quota_file import quota_file
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.runtime.fair_scheduling import TimeSlice, run_in_slices
from kafkalog_broker.security.authorizer import guarded
from kafkalog_broker.security.oauth_tokens import Tokens
from kafkalog_broker.security.sasl import KnownUsers
from kafkalog_broker.security.scram_users import NewUser, ScramUsers
from kafkalog_broker.share.share_coordinator import ShareCoordinator
from kafkalog_broker.share.share_partition_manager import SharePartitionManager
from kafkalog_broker.storage.file_fault import is_transient
from kafkalog_broker.storage.housekeeping import RETENTION_CHECKS_PER_TICK
from kafkalog_broker.storage.log_directory import LogDirectories, open_log_dirs
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.producer_ids import ProducerIds, largest_given
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_broker.transactions.transaction_coordinator import TransactionCoordinator
from kafkalog_broker.transactions.transaction_ends import TransactionEnds
from kafkalog_broker.transactions.transaction_marker import marker_writer
from kafkalog_broker.transactions.unclean_start import UncleanStart
from kafkalog_spark.format.names import OFFSETS_TOPIC, REMOTE_LOG_METADATA_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC

if TYPE_CHECKING:
    from kafkalog_broker.mirror.command import ServedMirror  # with aiokafka, which a broker of its own does without

_logger = logging.getLogger(__name__)

CERTIFICATES_S = 5.0  # how often the files of certificates are looked at: one stat each

_TICK_S = 1.0  # how often the log manager and the groups are asked what is due; each knows its own intervals

_FLUSH_POLL_S = 0.01  # how often `catch_up` looks whether the flushes that retention waits for have ended


class Server(Broker):
    """A broker that can be started. network: its listeners and connections. dirs: the log directories, locked."""

    network: Network
    dirs: LogDirectories

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock | None = None,
        new_users: Sequence[NewUser] = (),
        metrics: tuple[str, int] | None = None,
        mirror: ServedMirror | None = None,
    ) -> None:
        """new_users: users of SCRAM that are to be there; one that is already keeps its password. metrics: host and
        port to serve them at; `metrics_address` says where. mirror: copies its topics while they are served."""
        super().__init__(config, clock)
        self.mirror = mirror
        self.mirrored = None if mirror is None else mirror.source
        self._metrics_at = metrics
        self.metrics_address: tuple[str, int] | None = None
        self.scheduler: Scheduler = self.schedule  # how groups run something later
        self._new_users = new_users
        self.ensure_topic = partial(ensure_topic, self)
        self.tokens: dict[str, Tokens] = {}  # by listener, of those with OAUTHBEARER
        self._started = AsyncExitStack()

    async def start(self, progress: Callable[[Any], None] | None = None) -> None:
        """Bind the listeners, lock and load the log directories, serve. Raises KafkalogError, and then holds nothing:
        no task, no port, no lock, and a log directory that had been shut down cleanly still says so."""
        api.load_all()
        async with AsyncExitStack() as started:
            await self._start(started, progress)
            self._started = started.pop_all()

    async def stop(self) -> None:
        """The reverse of `start`. A clean stop: nothing that comes afterwards has to be recovered, but for the log
        directories in `logs.to_recover`."""
        await self._started.aclose()

    def updating_config(self, config: BrokerConfig) -> Generator[None, None, None]:
        self.network.use(config)
        self.groups.context.config = config
        yield from super().updating_config(config)

    async def _start(self, started: AsyncExitStack, progress: Callable[[Any], None] | None) -> None:
        """Each part pushes its own stop as it starts, so that a failed start and `stop` go one way."""
        started.callback(self.workers.shutdown)
        await self._bind(started)  # first: a port in use is the commonest failure, and nothing was touched yet
        self.dirs = open_log_dirs(self.config.log_dirs, self.node_id, self.clock.now_ms())
        started.callback(self.dirs.close)
        self.cluster_id = self.dirs.cluster_id
        deleted = await self._load_logs(started, progress)
        if self.config.remote_log_storage_system_enable:
            await self._start_remote_storage(started, deleted)
        await self._load_users()
        self.quota_file = quota_file([log_dir.path for log_dir in self.dirs.online])
        quotas = await self.run_blocking(self.quota_file.load)
        self.quotas.use(quotas or {})
        install_quota_handlers(self)
        await self._load_keys(started)
        self.tls.use(await self.run_blocking(self.tls.prepared, self.config.listener_security))
        self._make_coordinators(started)
        await self._settle_transactions()
        self.logs.is_settled = True
        self._begin_loading()
        self.network.use(self.config)
        started.callback(_logger.info, "the longest that requests held the event loop: %s", self.network.shared.watch)
        started.push_async_callback(self.network.stop)
        if self.remote is not None:
            started.callback(self.remote.begin_stop)
        self.logs.serve(self.workers.run_in_background)
        await self.network.serve()
        # Before the network stops: a join that waits for its group would hold its connection for the time of grace.
        started.callback(self.groups.shutdown)
        self.loading = self._run_until_stop(started, self._load_coordinators())
        self.logs.cleaner.start()
        if self.mirror is not None:
            self._run_until_stop(started, self._mirror_topics(self.mirror))
        self._run_until_stop(started, self._repeat("a periodic task", _TICK_S, self._do_what_is_due))
        if any(security.tls is not None for security in self.config.listener_security.values()):
            self._run_until_stop(started, self._repeat("reading certificates", CERTIFICATES_S, self._read_certificates))
        self.is_started = True
        started.callback(setattr, self, "is_started", False)

    async def _requests_served(self, started: AsyncExitStack) -> Dispatch:
        self.apis.wrap(Layer.ACCESS, None if self.authorizer is None else partial(guarded, self.authorizer))
        if self._metrics_at is None:
            return dispatcher(self, self.apis, flushes=self.flushes)
        from kafkalog_broker.metrics.serving import start_metrics

        serve, self.metrics_address = await start_metrics(self, lambda: self.network, self._metrics_at, started)
        return serve

    async def _bind(self, started: AsyncExitStack) -> None:
        dispatch, open_files = await self._requests_served(started), raise_open_files_limit()
        self.network = Network(dispatch, self.config, open_files, self.quotas.record_connection)
        started.callback(self.network.close_listeners)
        bound = {}
        for listener in self.config.listeners:
            name, security = listener.name, self.config.listener_security[listener.name]
            tls = partial(self.tls.of, name) if security.tls is not None else None
            gate = self._sasl_gate(name) if security.sasl else None
            bound[name] = (await self.network.bind(listener, tls, gate)).port
        self.advertised = with_bound_ports(self.config.advertised_listeners, bound)

    def _sasl_gate(self, listener: str) -> Gate:
        known = KnownUsers(
            lambda mechanism, user: self.scram_users.find(mechanism, user),
            lambda text: self.tokens[listener].check(text),
            self.clock.now_ms,
        )

        def settings() -> SaslSettings:
            return cast(SaslSettings, self.config.listener_security[listener].sasl)

        return partial(SaslGate, settings, known, clock=self._seconds)

    def _seconds(self) -> float:
        return self.clock.monotonic_ms() / 1000

    async def _load_keys(self, started: AsyncExitStack) -> None:
        """Raises ConfigError: without keys everybody would be shut out."""
        for name, security in self.config.listener_security.items():
            if security.sasl is not None and security.sasl.oauth is not None:
                self.tokens[name] = Tokens(security.sasl.oauth, self.clock.now_ms, self._seconds)
        signed = [tokens for tokens in self.tokens.values() if tokens.is_due]
        for tokens in signed:
            await self.run_blocking(tokens.load)
        if signed:
            self._run_until_stop(
                started, self._repeat("reading the keys of tokens", _TICK_S, partial(self._read_keys, signed))
            )

    async def _read_keys(self, signed: list[Tokens]) -> None:
        for tokens in signed:
            if tokens.is_due:
                await self.run_blocking(tokens.load_if_due)

    async def _load_users(self) -> None:
        directories = [log_dir.path for log_dir in self.dirs.online]
        if self.authorizer is not None:
            await self.run_blocking(self.authorizer.acls.load, directories)
        self.scram_users = ScramUsers(directories)
        await self.run_blocking(self.scram_users.load, self._new_users)

    async def _load_logs(self, started: AsyncExitStack, progress: Callable[[Any], None] | None) -> frozenset[UUID]:
        """The ids of topics whose deletion a crash had interrupted."""
        online = [log_dir.path for log_dir in self.dirs.online]
        self.dynamic_configs = DynamicConfigs(online, self.node_id)
        self.dynamic_configs.load()
        try:
            self.config = self.config.with_dynamic(self.dynamic_configs.default, self.dynamic_configs.broker)
        except ConfigError as error:
            hint = f"it was set while the broker ran: correct it in {DYNAMIC_CONFIGS_FILE} of each log directory"
            raise ConfigError(error.what, name=error.name, hint=hint) from None
        self.topics = TopicRegistry(self.dirs.all)
        self.topics.load()
        check_remote_storage_enabled(self.config, {topic.name: topic.configs for topic in self.topics})
        deleted = self.topics.deleted
        if self.mirror is not None:
            self.mirror.check_directory(self.topics)
        self.producer_ids = ProducerIds(online, self.workers.run_in_background)
        # One broker's directory of a larger cluster has some of them, and loading makes the others, which are empty.
        found = {path.name for directory in online for path in directory.glob(f"{TRANSACTION_TOPIC}-*")}
        self._state_partitions_found = sum(name.rpartition("-")[2].isdecimal() for name in found)
        self.logs = LogManager(
            self.dirs,
            self.config,
            self.topics,
            self.clock,
            call_soon=asyncio.get_running_loop().call_soon_threadsafe,
            run_blocking=self.workers.run_in_background,
            on_all_offline=self.failed.set,
        )
        self.logs.is_settled = False
        started.push_async_callback(self.run_blocking, self.logs.shutdown)
        loading = self.workers.begin_blocking(partial(self.logs.load, progress))
        started.push_async_callback(asyncio.wait, [loading])  # a start that is cancelled leaves it running
        started.callback(self.logs.stops_loading.set)
        await loading
        if self.mirror is None:
            mirrored = self.config, self.logs, self.topics, self.log, self.clock, self.producer_ids
            await self.run_blocking(take_mirrors_over, online, *mirrored)
        return deleted

    async def _start_remote_storage(self, started: AsyncExitStack, deleted: frozenset[UUID]) -> None:
        from kafkalog_broker.remote.remote_log_manager import RemoteLogManager
        from kafkalog_broker.remote.remote_log_metadata_manager import RemoteLogMetadataManager, metadata_topic_configs
        from kafkalog_broker.remote.storage_location import open_remote_storage, settle_location

        if self.mirror is not None:
            raise ConfigError("a broker that mirrors another cluster has no remote storage", name=REMOTE_STORAGE)
        online = [log_dir.path for log_dir in self.dirs.online]
        first = self.dirs.all[0].path
        storage = await self.run_blocking(open_remote_storage, lambda: self.config, first, online)
        started.push_async_callback(self.run_blocking, storage.close)
        made = self.config.remote_log_metadata_topic
        topic = await self.ensure_topic(REMOTE_LOG_METADATA_TOPIC, made.partitions, metadata_topic_configs(made))
        metadata = RemoteLogMetadataManager(self.node_id, self.clock, self.log, self.run_blocking)
        remote = RemoteLogManager(
            lambda: self.config,
            storage,
            metadata,
            logs=self.logs,
            topics=self.topics,
            clock=self.clock,
            call=self.run_blocking,
            stay_above=lambda ids: self.producer_ids.stay_above(largest_given(list(ids))),
            deleted=deleted,
        )
        await remote.start(topic, partial(settle_location, storage, metadata, online, self.clock.now_ms()))
        self.remote = remote
        started.push_async_callback(remote.stop)
        self._run_until_stop(started, remote.run())

    def _make_coordinators(self, started: AsyncExitStack) -> None:
        clock, config = self.clock, self.config
        initialize_shared = self._make_share_parts(started)
        self.offsets_topic = offsets = self._state_log(OFFSETS_TOPIC)
        context = GroupContext(
            config,
            clock,
            self.scheduler,
            topics=self.topics,
            overrides=self.dynamic_configs.of_group,
            background=self.workers.compute_then,
            initialize=initialize_shared,
        )
        self.groups = GroupCoordinator(offsets, context)
        state = self._state_log(TRANSACTION_TOPIC, config.transaction_state_log_load_buffer_size)
        self.write_marker = marker_writer(self.groups, self.log, clock)
        self.transactions = TransactionCoordinator(
            config, clock=clock, state_log=state, write_marker=self.write_marker,
            new_producer_id=self.producer_ids.next, flushes=self.flushes,
        )  # fmt: skip
        self.transaction_ends = TransactionEnds(self.transactions, self.log, self.flushes)
        if self.mirror is not None:  # it would end transactions of the source's, and write markers into its logs
            self.transactions.runtime.stop()
        started.callback(self.transactions.shutdown)
        started.push_async_callback(self.transaction_ends.stop)

    def _state_log(self, topic: str, read_bytes: int = 1 << 20) -> CoordinatorLog:
        partitions = self.internal_partitions[topic]
        return CoordinatorLog(topic, self.topics, self.log, self.clock, partitions, read_bytes, self.flushes)

    def _make_share_parts(self, started: AsyncExitStack) -> InitializeShared:
        config, initializing = self.config, set[asyncio.Task[None]]()
        state = self._state_log(SHARE_STATE_TOPIC, config.share_coordinator_load_buffer_size)
        self.share_state_topic = state
        self.share_coordinator = ShareCoordinator(config, self.clock, state, self.topics)
        self.share_partitions = SharePartitionManager(
            config.group_share_max_share_sessions, self.share_coordinator,
            lambda topic_id, partition: self.log(self.topic_name(topic_id), partition),
            lambda group_id: share_group_settings(self.config, self.dynamic_configs.of_group(group_id)), self.clock,
            self.scheduler, self.run_blocking,
        )  # fmt: skip

        def begin(group_id: str, epoch: int, topics: Mapping[UUID, SharedTopic], from_start: bool) -> None:
            task = asyncio.create_task(
                initialize_share_partitions(self, group_id, epoch, topics, from_start=from_start)
            )
            initializing.add(task)
            task.add_done_callback(initializing.discard)

        def stop() -> None:
            for task in initializing:
                task.cancel()
            self.share_coordinator.runtime.stop()

        started.callback(stop)
        return begin

    async def _settle_transactions(self) -> None:
        """After an unclean start: see transactions/unclean_start.py. Before the broker serves and reads groups, so that
        no client sees a transaction undecided. A clean start reads nothing here."""
        if self.mirror is not None or all(log_dir.was_clean for log_dir in self.dirs.online):
            return
        await self.transactions.runtime.load_owned(self.run_blocking, "transactions")
        logs = await self.run_blocking(self._all_logs)
        is_whole = self._state_partitions_found >= len(self.transactions.runtime.log.owned())
        await UncleanStart(self.transactions, self.clock).settle(logs, self.run_blocking, is_whole=is_whole)

    def _all_logs(self) -> list[Log]:
        """Logs of all partitions, also those of directories that were shut down cleanly, but for those offline."""
        found = []
        for key in self.logs.partitions():
            try:
                log = self.logs.get(*key)
            except BrokerError as error:
                if is_transient(error):
                    raise
                continue  # it is offline
            if log is not None:
                found.append(log)
        return found

    def _begin_loading(self) -> None:
        """From now on, partitions that `_load_coordinators` has not read yet answer COORDINATOR_LOAD_IN_PROGRESS."""
        for runtime in (self.groups.runtime, self.share_coordinator.runtime, self.transactions.runtime):
            if runtime is not self.transactions.runtime or self.mirror is None:
                runtime.begin_loading(runtime.log.owned())

    async def _load_coordinators(self) -> None:
        """While the broker serves: transactions first, so that what was prepared is completed soon."""
        if self.mirror is None:
            await self.transactions.runtime.load_owned(self.run_blocking, "transactions")
            self.transaction_ends.complete_soon()
        await self.groups.runtime.load_owned(self.run_blocking, "groups")
        self.transaction_ends.complete_soon()  # those that wait for a group's partition
        await self.share_coordinator.runtime.load_owned(self.run_blocking, "share partitions")

    async def _mirror_topics(self, mirror: ServedMirror) -> None:
        async def forget(topic: str) -> None:
            turn = TimeSlice()
            async for _ in turn.spread(self.groups.on_topics_deleted({topic})):
                pass

        def fail(why: str) -> None:
            self.why_failed = why
            self.failed.set()

        await mirror.run(self.logs, self.topics, self.config, self.workers, self.clock, forget, fail)

    def _run_until_stop(self, started: AsyncExitStack, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        started.push_async_callback(asyncio.wait, [task])
        started.callback(task.cancel)
        return task

    async def _repeat(self, what: str, every_s: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await sleep(every_s)
            try:
                await work()
            except Exception:
                _logger.exception("%s failed, which is tried again", what)

    async def _do_what_is_due(self) -> None:
        began, now_ms = perf_counter(), self.clock.now_ms()
        try:
            self.logs.tick(now_ms)
            self.groups.tick()
            self.transactions.tick(now_ms)
            self.transaction_ends.complete_soon()
        except Exception:
            _logger.exception("a periodic task failed and is tried again")
        self.network.shared.watch.note_named("periodic tasks", perf_counter() - began)
        try:
            await run_in_slices(self.share_coordinator.snapshot_cold_if_due())
            await self.share_coordinator.prune_if_due()
        except Exception:
            _logger.exception("a periodic task failed and is tried again")

    async def catch_up(self) -> None:
        """Do all that is due at once, instead of a part of it every second: for a clock that was moved."""
        for _ in range(1 + len(self.logs.partitions()) // RETENTION_CHECKS_PER_TICK):
            await self._do_what_is_due()
            await asyncio.sleep(0)
        while self.logs.retention_waits_for_flush:
            await asyncio.sleep(_FLUSH_POLL_S)
            await self._do_what_is_due()

    def schedule(self, delay_ms: int, call: Callable[[], None]) -> TimerHandle:
        """A LateTimer of the broker's event loop."""
        return LateTimer(asyncio.get_running_loop(), delay_ms / 1000, call)

    async def _read_certificates(self) -> None:
        async with self.altering:  # nor are they made anew by a change of configuration meanwhile
            changed = await self.run_blocking(self.tls.changed_files)
            if changed is not None:
                self.tls.use(changed)
