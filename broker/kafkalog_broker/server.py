"""The broker: everything wired together, started and stopped. One per process and log directory.

broker = Broker(BrokerConfig.from_properties(properties))
await broker.start()       # listeners bound, directories locked and loaded, connections accepted
...
await broker.stop()        # requests in work finished, logs flushed and closed, the clean-shutdown marker written
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from kafkalog_broker import api
from kafkalog_broker.admin import topic_changes
from kafkalog_broker.clock import Clock, SystemClock
from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.definition import Source
from kafkalog_broker.config.dynamic_configs import DynamicConfigs
from kafkalog_broker.config.internal_topics import OFFSETS_TOPIC
from kafkalog_broker.config.listeners import Listener, with_bound_ports
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.fetching.fetch_session import FetchSessions
from kafkalog_broker.fetching.long_poll import LongPolls
from kafkalog_broker.groups.group_config import GroupConfig
from kafkalog_broker.groups.group_coordinator import GroupCoordinator
from kafkalog_broker.groups.loading import load
from kafkalog_broker.idle_trim import IdleTrim
from kafkalog_broker.net.dispatch import dispatcher
from kafkalog_broker.net.late_timers import LateTimer, sleep
from kafkalog_broker.net.limits import NetworkLimits, connections_within, raise_open_files_limit
from kafkalog_broker.net.listener import Network
from kafkalog_broker.offsets_topic import OffsetsTopic
from kafkalog_broker.storage.log_dir import LogDirs, open_log_dirs
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.producer_ids import ProducerIds
from kafkalog_broker.storage.topic_registry import Topic, TopicRegistry
from kafkalog_broker.transaction_ends import TransactionEnds
from kafkalog_broker.transactions.loading import load as load_transactions
from kafkalog_broker.transactions.transaction_config import TransactionConfig
from kafkalog_broker.transactions.transaction_coordinator import TransactionCoordinator
from kafkalog_broker.transactions_topic import TransactionsTopic
from kafkalog_spark.errors import KafkalogError

_logger = logging.getLogger(__name__)

_THREADS = 8
"""For what waits for a disk."""
_TICK_S = 1.0
"""How often the log manager and the groups are asked whether something is due; each knows its own intervals."""
_EVERY_APPEND = 1  # the flush.messages with which only what is on disk is acknowledged
T = TypeVar("T")


class Broker:
    """What handlers get. config, clock, topics, logs, groups, transactions, fetch_sessions, producer_ids; node_id,
    cluster_id.

    `advertised`: the listeners as clients are told, ports filled in. `failed`: set when no log directory works any
    more; whoever runs the broker is to stop it then. Everything runs in one event loop; `run_blocking` is the way out.
    """

    def __init__(self, config: BrokerConfig, clock: Clock | None = None) -> None:
        self.config = config
        self.clock = clock or SystemClock()
        self.node_id = config.node_id
        self.advertised: tuple[Listener, ...] = ()
        self.fetch_sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots)
        self.long_polls = LongPolls()
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="kafkalog-broker")
        self._computing = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="kafkalog-computing")
        self._dirs: LogDirs
        self.topics: TopicRegistry
        self.logs: LogManager
        self.groups: GroupCoordinator
        self.transactions: TransactionCoordinator
        self.transaction_ends: TransactionEnds
        self.producer_ids: ProducerIds
        self.network: Network
        self.failed = asyncio.Event()
        self._started = AsyncExitStack()
        self._flushing: dict[str, asyncio.Task[None]] = {}
        self._trim = IdleTrim(self._executor.submit)

    @property
    def cluster_id(self) -> str:
        return self._dirs.cluster_id

    # ---- start and stop

    async def start(self, progress: Callable[[Any], None] | None = None) -> None:
        """Bind the listeners, lock and load the log directories, serve.

        Raises KafkalogError, and then holds nothing: no task, no port, no lock, and a log directory that had been shut
        down cleanly still says so.
        """
        self._loop = asyncio.get_running_loop()
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

    async def _start(self, started: AsyncExitStack, progress: Callable[[Any], None] | None) -> None:
        """Each part pushes its own stop as it starts, so that a failed start and `stop` go one way."""
        started.callback(self._executor.shutdown)
        started.callback(self._computing.shutdown)
        started.callback(self._trim.cancel)
        await self._bind(started)  # first: a port in use is the commonest failure, and nothing was touched yet
        self._dirs = open_log_dirs(self.config.log_dirs, self.node_id, self.clock.now_ms())
        started.callback(self._dirs.close)
        await self._load_logs(started, progress)
        offsets, state = self._make_coordinators(started)
        self.network.limits = _network_limits(self.config, self._open_files)
        started.callback(self._tell_longest_holds)
        started.push_async_callback(self.network.stop)
        await self.network.serve()
        # Before the network stops: a join that waits for its group would hold its connection for the time of grace.
        started.callback(self.groups.shutdown)
        self._loading = self._run_until_stop(started, self._load_coordinators(offsets, state))
        self.logs.cleaner.start()
        self._run_until_stop(started, self._tick())

    async def _bind(self, started: AsyncExitStack) -> None:
        config = self.config
        self._open_files = raise_open_files_limit()
        self.network = Network(dispatcher(self), _network_limits(config, self._open_files))
        started.callback(self.network.close_listeners)
        bound = {
            listener.name: (await self.network.bind(listener.name, listener.host, listener.port)).port
            for listener in config.listeners
        }
        self.advertised = with_bound_ports(config.advertised_listeners, bound)

    async def _load_logs(self, started: AsyncExitStack, progress: Callable[[Any], None] | None) -> None:
        online = [log_dir.path for log_dir in self._dirs.online]
        self.dynamic_configs = DynamicConfigs(online, self.node_id)
        self.dynamic_configs.load()
        self.config = self.config.with_dynamic(self.dynamic_configs.default, self.dynamic_configs.broker)
        self.topics = TopicRegistry(self._dirs.all)
        self.topics.load()
        self.producer_ids = ProducerIds(online, self._in_background)
        self.logs = LogManager(
            self._dirs,
            self.config,
            self.topics,
            self.clock,
            call_soon=self._loop.call_soon_threadsafe,
            run_blocking=self._in_background,
            on_all_offline=self.failed.set,
        )
        started.push_async_callback(self.run_blocking, self.logs.shutdown)
        loading = self._loop.run_in_executor(self._executor, self.logs.load, progress)
        started.push_async_callback(asyncio.wait, [loading])  # a start that is cancelled leaves it running
        started.callback(self.logs.stop_loading)
        await loading
        started.push_async_callback(self._flushed_all)

    def _make_coordinators(self, started: AsyncExitStack) -> tuple[OffsetsTopic, TransactionsTopic]:
        self.offsets_topic = offsets = OffsetsTopic(self)
        self.groups = GroupCoordinator(
            GroupConfig.of(self.config),
            clock=self.clock,
            scheduler=lambda delay_ms, call: LateTimer(self._loop, delay_ms / 1000, call),
            append=offsets.append,
            scan=offsets.scan,
            partition_count=lambda: offsets.partitions,
            owned=offsets.owned,
        )
        for partition in offsets.owned():
            self.groups.begin_loading(partition)
        state = TransactionsTopic(self)
        self.transaction_ends = TransactionEnds(self, state)
        self.transactions = TransactionCoordinator(
            TransactionConfig.of(self.config),
            clock=self.clock,
            state_log=state,
            write_marker=self.transaction_ends.write_marker,
            new_producer_id=self.producer_ids.next,
        )
        for partition in state.owned():
            self.transactions.table.begin_loading(partition)
        started.callback(self.transactions.table.shutdown)
        started.push_async_callback(self.transaction_ends.stop)
        return offsets, state

    def _run_until_stop(self, started: AsyncExitStack, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        started.push_async_callback(asyncio.wait, [task])
        started.callback(task.cancel)
        return task

    async def _load_coordinators(self, offsets: OffsetsTopic, state: TransactionsTopic) -> None:
        await self._load_transactions(state)
        await self._load_groups(offsets)
        self.transaction_ends.complete_soon()  # those that wait for a group's partition

    async def _load_transactions(self, state: TransactionsTopic) -> None:
        """Read __transaction_state while the broker serves, and complete what was prepared."""
        for partition in state.owned():
            try:
                loaded = await self.run_blocking(lambda number: load_transactions(state.scan(number)), partition)
            except KafkalogError as error:
                _logger.error("the transactions of %s-%d cannot be loaded: %s", state.name, partition, error)
                self.transactions.table.give_up(partition)
            else:
                self.transactions.table.open(partition, loaded)
        self.transaction_ends.complete_soon()

    async def _load_groups(self, offsets: OffsetsTopic) -> None:
        """Read __consumer_offsets while the broker serves: its groups are COORDINATOR_LOAD_IN_PROGRESS meanwhile."""
        for partition in offsets.owned():
            try:
                loaded = await self.run_blocking(lambda number: load(offsets.scan(number)), partition)
            except KafkalogError as error:
                _logger.error("the groups of %s-%d cannot be loaded: %s", OFFSETS_TOPIC, partition, error)
                self.groups.give_up(partition)
            else:
                self.groups.open(partition, loaded)

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

    async def run_blocking(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Run what waits for a disk in a thread."""
        return await self._loop.run_in_executor(self._executor, partial(function, *arguments, **named))

    async def run_computing(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Run what takes long without the interpreter, decompressing above all, in a thread of its own kind: what
        flushes never waits for it. What it used goes back to the system when nothing of the kind came for a second."""
        try:
            return await self._loop.run_in_executor(self._computing, partial(function, *arguments, **named))
        finally:
            self._trim.soon()

    @property
    def longest_holds(self) -> Mapping[str, float]:
        """The longest that the event loop was held by requests of each API, in seconds, the longest first."""
        return self.network.watch.longest

    def _tell_longest_holds(self) -> None:
        _logger.info("the longest that requests held the event loop: %s", self.network.watch)

    def _in_background(self, function: Callable[[], object]) -> None:
        """Run it in a thread; nobody waits, so what it raises is told in the log."""
        self._executor.submit(function).add_done_callback(_tell_failure)

    # ---- what handlers ask for

    def log(self, topic: str, partition: int) -> Log:
        """The log of a partition. Raises BrokerError: unknown_topic_or_partition, kafka_storage_error."""
        log = self.logs.get(topic, partition)
        if log is None:
            raise BrokerError(ErrorCode.unknown_topic_or_partition, f"there is no partition {topic}-{partition}")
        return log

    async def ensure_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
        """The topic, created with its logs when it is missing. For internal topics: they have one replica, whatever
        default.replication.factor is. Raises BrokerError."""
        return await topic_changes.ensure_topic(self, topic_changes.NewTopic(name, partitions, 1, configs=configs))

    def updating_config(self, config: BrokerConfig) -> Generator[None, None, None]:
        """Dynamic properties have changed: new connections go by them at once, and logs, in steps."""
        self.config = config
        self.network.limits = _network_limits(config, self._open_files)
        yield from self.logs.updating_config(config)

    async def producer_id_is_there(self) -> None:
        """Return when producer_ids.next() will give an id in this turn of the loop. Raises BrokerError."""
        while self.producer_ids.is_empty:
            try:
                await self.run_blocking(self.producer_ids.fetch)
            except OSError as error:
                raise BrokerError(
                    ErrorCode.coordinator_not_available, f"no producer id to give out: {error}"
                ) from error

    async def flush_if_due(self, log: Log) -> None:
        """Flush as flush.messages and flush.ms say. With flush.messages=1 the answer waits, otherwise nobody does."""
        if not log.needs_flush(self.clock.now_ms()):
            return
        if log.config.flush_messages == _EVERY_APPEND:
            await self.run_blocking(log.flush, log.log_end_offset)
        elif log.name not in self._flushing:
            task = asyncio.create_task(self.run_blocking(log.flush))
            self._flushing[log.name] = task
            task.add_done_callback(lambda done: self._flushed(log.name, done))

    async def flush_offsets(self, group_id: str) -> None:
        """As `flush_if_due`, for what was just committed to a group's partition of __consumer_offsets."""
        if OFFSETS_TOPIC in self.topics:
            await self.flush_if_due(self.offsets_topic.log(self.groups.partition_for(group_id)))

    async def _flushed_all(self) -> None:
        await asyncio.gather(*self._flushing.values(), return_exceptions=True)

    def _flushed(self, name: str, task: asyncio.Task[None]) -> None:
        del self._flushing[name]
        if not task.cancelled() and task.exception() is not None:
            _logger.error("flushing %s failed: %s", name, task.exception())


def _tell_failure(done: Future[object]) -> None:
    error = None if done.cancelled() else done.exception()
    if error is not None:
        _logger.error("work in the background failed: %s: %s", type(error).__name__, error, exc_info=error)


def _network_limits(config: BrokerConfig, open_files: int) -> NetworkLimits:
    return NetworkLimits(
        max_request_bytes=config.socket_request_max_bytes,
        queued_max_request_bytes=config.queued_max_request_bytes,
        max_connections=connections_within(open_files, config.max_connections),
        max_connections_per_ip=config.max_connections_per_ip,
        max_connection_creation_rate=config.max_connection_creation_rate,
        max_idle_ms=config.connections_max_idle_ms,
        backlog=_backlog(config),
        max_connections_per_ip_overrides=_per_ip(config.max_connections_per_ip_overrides),
        send_buffer_bytes=_buffer(config, "socket.send.buffer.bytes", config.socket_send_buffer_bytes),
        receive_buffer_bytes=_buffer(config, "socket.receive.buffer.bytes", config.socket_receive_buffer_bytes),
    )


def _backlog(config: BrokerConfig) -> int:
    """As many as the system allows where nobody chose a number. Kafka has a thread that does nothing but accept, so its
    default of 50 is never full; here a burst of connections waits for a round of the event loop, and one that finds the
    backlog full tries again after a second."""
    chosen = any(layer[2] is not Source.DEFAULT for layer in config.sources("socket.listen.backlog.size"))
    return config.socket_listen_backlog_size if chosen else max(socket.SOMAXCONN, config.socket_listen_backlog_size)


def _buffer(config: BrokerConfig, name: str, size: int) -> int:
    """A socket buffer's size where somebody chose one; Kafka's default of 100 kB would switch off what Linux does by
    itself, which is faster."""
    return size if any(layer[2] is not Source.DEFAULT for layer in config.sources(name)) else -1


def _per_ip(text: str) -> dict[str, int]:
    """max.connections.per.ip.overrides: `host:number,...`."""
    pairs = (item.rpartition(":") for item in text.split(",") if item.strip())
    return {host.strip(): int(number) for host, _, number in pairs}
