"""The broker: everything wired together, started and stopped. One per process and log directory.

broker = Broker(BrokerConfig.from_properties(properties))
await broker.start()       # directories locked and loaded, listeners bound
...
await broker.stop()        # requests in work finished, logs flushed and closed, the clean-shutdown marker written
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from broker import api
from broker.admin import topic_changes
from broker.clock import Clock, SystemClock
from broker.config.broker_config import BrokerConfig
from broker.config.definition import Source
from broker.config.dynamic_configs import DynamicConfigs
from broker.config.internal_topics import OFFSETS_TOPIC
from broker.config.listeners import Listener, with_bound_ports
from broker.errors import BrokerError, ErrorCode
from broker.fetching.fetch_session import FetchSessions
from broker.groups.group_config import GroupConfig
from broker.groups.group_coordinator import GroupCoordinator
from broker.groups.loading import load
from broker.net.dispatch import dispatcher
from broker.net.limits import NetworkLimits, connections_within, raise_open_files_limit
from broker.net.listener import Network
from broker.offsets_topic import OffsetsTopic
from broker.storage.log import Log
from broker.storage.log_dir import LogDirs, open_log_dirs
from broker.storage.log_manager import LogManager
from broker.storage.producer_ids import ProducerIds
from broker.storage.topic_registry import Topic, TopicRegistry
from broker.transaction_ends import TransactionEnds
from broker.transactions.loading import load as load_transactions
from broker.transactions.transaction_config import TransactionConfig
from broker.transactions.transaction_coordinator import TransactionCoordinator
from broker.transactions_topic import TransactionsTopic
from kafkalog_spark.errors import KafkalogError

_logger = logging.getLogger("kafkalog.broker")

_THREADS = 8
"""For fsync and for unfolding batches: both wait or leave the interpreter free."""
_TICK_S = 1.0
"""How often the log manager and the groups are asked whether something is due; each knows its own intervals."""
_EVERY_APPEND = 1  # the flush.messages with which only what is on disk is acknowledged
T = TypeVar("T")


class Broker:
    """What handlers get. config, clock, topics, logs, groups, transactions, fetch_sessions, producer_ids; node_id,
    cluster_id.

    `advertised`: the listeners as clients are told, ports filled in. Everything runs in one event loop; `run_blocking`
    is the way out of it.
    """

    def __init__(self, config: BrokerConfig, clock: Clock | None = None) -> None:
        self.config = config
        self.clock = clock or SystemClock()
        self.node_id = config.node_id
        self.advertised: tuple[Listener, ...] = ()
        self.fetch_sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots)
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="kafkalog-broker")
        self._dirs: LogDirs
        self.topics: TopicRegistry
        self.logs: LogManager
        self.groups: GroupCoordinator
        self.transactions: TransactionCoordinator
        self.transaction_ends: TransactionEnds
        self.producer_ids: ProducerIds
        self.network: Network
        self._ticks: asyncio.Task[None] | None = None
        self._loading: asyncio.Task[None] | None = None
        self._flushing: dict[str, asyncio.Task[None]] = {}

    @property
    def cluster_id(self) -> str:
        return self._dirs.cluster_id

    # ---- start and stop

    async def start(self, progress: Callable[[Any], None] | None = None) -> None:
        """Lock and load the log directories, bind the listeners. Raises KafkalogError, and then holds nothing."""
        self._loop = asyncio.get_running_loop()
        api.load_all()
        self._dirs = open_log_dirs(self.config.log_dirs, self.node_id, self.clock.now_ms())
        try:
            online = [log_dir.path for log_dir in self._dirs.online]
            self.dynamic_configs = DynamicConfigs(online, self.node_id)
            self.dynamic_configs.load()
            self.config = self.config.with_dynamic(self.dynamic_configs.default, self.dynamic_configs.broker)
            self.topics = TopicRegistry(self._dirs.all)
            self.topics.load()
            self.logs = LogManager(
                self._dirs,
                self.config,
                self.topics,
                self.clock,
                call_soon=self._loop.call_soon_threadsafe,
                run_blocking=self._in_background,
            )
            await self.run_blocking(self.logs.load, progress)
            self.producer_ids = ProducerIds(online)
            self.offsets_topic = offsets = OffsetsTopic(self)
            self.groups = GroupCoordinator(
                GroupConfig.of(self.config),
                clock=self.clock,
                scheduler=lambda delay_ms, call: self._loop.call_later(delay_ms / 1000, call),
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
            self._loading = asyncio.create_task(self._load_coordinators(offsets, state))
            await self._listen()
            self.logs.cleaner.start()
        except BaseException:
            self._dirs.close()
            self._executor.shutdown(wait=False)
            raise
        self._ticks = asyncio.create_task(self._tick())

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

    async def _listen(self) -> None:
        config = self.config
        self._open_files = raise_open_files_limit()
        self.network = Network(dispatcher(self), _network_limits(config, self._open_files))
        try:
            bound = {
                listener.name: (await self.network.listen(listener.name, listener.host, listener.port)).port
                for listener in config.listeners
            }
        except BaseException:
            await self.network.stop()
            raise
        self.advertised = with_bound_ports(config.advertised_listeners, bound)

    async def stop(self) -> None:
        """A clean stop: nothing that comes afterwards has to be recovered."""
        for task in (self._ticks, self._loading):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self.groups.shutdown()
        await self.network.stop()
        await self.transaction_ends.stop()
        self.transactions.table.shutdown()
        await asyncio.gather(*self._flushing.values(), return_exceptions=True)
        await self.run_blocking(self.logs.shutdown)
        self._dirs.close()
        self._executor.shutdown()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            now_ms = self.clock.now_ms()
            try:
                self.logs.tick(now_ms)
                self.groups.tick(now_ms)
                self.transactions.tick(now_ms)
                self.transaction_ends.complete_soon()
            except Exception:
                _logger.exception("a periodic task failed and is tried again")

    async def run_blocking(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Run what blocks, or takes long without the interpreter, in a thread."""
        return await self._loop.run_in_executor(self._executor, partial(function, *arguments, **named))

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

    def update_config(self, config: BrokerConfig) -> None:
        """Dynamic properties have changed: logs and new connections go by them from now on."""
        self.config = config
        self.logs.update_config(config)
        self.network.limits = _network_limits(config, self._open_files)

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
        max_connections=connections_within(open_files, config.max_connections),
        max_connections_per_ip=config.max_connections_per_ip,
        max_connection_creation_rate=config.max_connection_creation_rate,
        max_idle_ms=config.connections_max_idle_ms,
        backlog=config.socket_listen_backlog_size,
        max_connections_per_ip_overrides=_per_ip(config.max_connections_per_ip_overrides),
        send_buffer_bytes=_buffer(config, "socket.send.buffer.bytes", config.socket_send_buffer_bytes),
        receive_buffer_bytes=_buffer(config, "socket.receive.buffer.bytes", config.socket_receive_buffer_bytes),
    )


def _buffer(config: BrokerConfig, name: str, size: int) -> int:
    """A socket buffer's size where somebody chose one; Kafka's default of 100 kB would switch off what Linux does by
    itself, which is faster."""
    return size if any(layer[2] is not Source.DEFAULT for layer in config.sources(name)) else -1


def _per_ip(text: str) -> dict[str, int]:
    """max.connections.per.ip.overrides: `host:number,...`."""
    pairs = (item.rpartition(":") for item in text.split(",") if item.strip())
    return {host.strip(): int(number) for host, _, number in pairs}
