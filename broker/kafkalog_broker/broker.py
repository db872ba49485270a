"""Parts of a running broker, as handlers see them; `server.Server` makes, starts and stops them. Nothing below the
handlers knows this class: each part is given what it needs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.dynamic_configs import CLIENT_METRICS, DynamicConfigs
from kafkalog_broker.config.listeners import Listener
from kafkalog_broker.config.log_config import internal_topic_configs
from kafkalog_broker.config.state_copies import StateCopies
from kafkalog_broker.coordinator.coordinator_log import CoordinatorLog
from kafkalog_broker.coordinator.log_flushes import LogFlushes
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.fetching.converting_reader import ConvertingReader
from kafkalog_broker.fetching.fetch import Fetcher
from kafkalog_broker.fetching.fetch_session import FetchSessions
from kafkalog_broker.fetching.long_poll import LongPolls
from kafkalog_broker.groups.group_coordinator import GroupCoordinator
from kafkalog_broker.protocol.api_registry import ServedApis
from kafkalog_broker.quotas.client_quotas import ClientQuotas
from kafkalog_broker.quotas.quota_entity import Quotas
from kafkalog_broker.quotas.rates import Windows
from kafkalog_broker.runtime.clock import Clock, SystemClock
from kafkalog_broker.runtime.traffic import Traffic
from kafkalog_broker.runtime.workers import Workers
from kafkalog_broker.security.authorizer import Authorizer
from kafkalog_broker.security.scram_users import ScramUsers
from kafkalog_broker.security.tls import Tls
from kafkalog_broker.share.share_coordinator import ShareCoordinator
from kafkalog_broker.share.share_partition_manager import SharePartitionManager
from kafkalog_broker.storage.append.appender import Appender
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_broker.storage.partition.log import EVERY_APPEND, Log
from kafkalog_broker.storage.producer_ids import ProducerIds
from kafkalog_broker.storage.topic import Topic
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_broker.telemetry.client_instances import ClientInstances
from kafkalog_broker.transactions.transaction_coordinator import TransactionCoordinator
from kafkalog_broker.transactions.transaction_ends import TransactionEnds
from kafkalog_broker.transactions.transaction_marker import WriteMarker
from kafkalog_spark.format.names import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC

if TYPE_CHECKING:
    from kafkalog_broker.remote.remote_log_manager import RemoteLogManager  # which others do without

EnsureTopic = Callable[[str, int, Mapping[str, str]], Awaitable[Topic]]
"""ensure_topic(name, partitions, configs): as admin.topic_creation.ensure_topic."""


class Broker:
    """config, node_id, cluster_id; `advertised`: the listeners as clients are to reach them, ports filled in.

    `failed`: set when no log directory works any more, or for `why_failed`; whoever runs the broker is to stop it then.
    `mirrored`: the cluster whose topics it mirrors, None when they are its own. Everything runs in one event loop;
    `run_blocking` and `run_computing` are the ways out.
    """

    cluster_id: str
    topics: TopicRegistry
    logs: LogManager
    dynamic_configs: DynamicConfigs
    offsets_topic: CoordinatorLog
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    transaction_ends: TransactionEnds
    write_marker: WriteMarker
    share_state_topic: CoordinatorLog
    share_coordinator: ShareCoordinator
    share_partitions: SharePartitionManager
    producer_ids: ProducerIds
    ensure_topic: EnsureTopic
    quota_file: StateCopies[Quotas]
    scram_users: ScramUsers
    loading: asyncio.Task[None]  # reads the coordinators' topics

    def __init__(self, config: BrokerConfig, clock: Clock | None = None) -> None:
        self.config = config
        self.clock = clock or SystemClock()
        self.node_id = config.node_id
        self.advertised: tuple[Listener, ...] = ()
        self.mirrored: str | None = None
        self.is_started = False
        self.failed = asyncio.Event()
        self.why_failed: str | None = None
        self.apis = ServedApis()
        self.quotas = ClientQuotas(
            Windows(config.quota_window_num, config.quota_window_size_seconds * 1000),
            Windows(config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000),
            lambda: self.clock.monotonic_ms(),
        )
        self.traffic: Traffic | None = None  # where handlers count for the metrics; None without them
        self.remote: RemoteLogManager | None = None  # None without remote.log.storage.system.enable
        self.telemetry = ClientInstances(
            self.clock.now_ms, config.telemetry_max_bytes, lambda: self.dynamic_configs.of[CLIENT_METRICS]
        )
        self.workers = Workers()
        self.run_blocking, self.run_computing = self.workers.run_blocking, self.workers.run_computing
        self.flushes = LogFlushes(self.workers.begin_blocking)
        self.tls = Tls()
        self.authorizer = None if config.authorizer is None else Authorizer(config.authorizer)
        self.fetcher = Fetcher(
            FetchSessions(config.max_incremental_fetch_session_cache_slots),
            LongPolls(),
            ConvertingReader(self.workers),
            self.clock,
        )
        self.appender = Appender(self.workers, self.clock, self.flush_if_due)
        self.ensuring = asyncio.Lock()  # held while an internal topic is made
        self.altering = asyncio.Lock()  # held while configuration is changed
        self.leaving: dict[str, asyncio.Event] = {}
        """Topics whose directories are being renamed: a new one of that name waits for it."""
        self.described: tuple[BrokerConfig, dict[Any, bytes]] = (config, {})
        """Cache of DescribeConfigs for as long as a configuration holds."""

    def updating_config(self, config: BrokerConfig) -> Generator[None, None, None]:
        """Dynamic properties have changed: new connections go by them at once, and logs, in steps."""
        self.config = config
        yield from self.logs.updating_config(config)

    def not_ready(self) -> str | None:
        """None while clients are served, groups and transactions too; else why they are not."""
        if self.failed.is_set():
            return "all log directories have failed"
        if not self.is_started:
            return "it starts, or stops"
        return None if self.loading.done() else "groups and transactions are being read"

    # ---- shortcuts for handlers

    @property
    def internal_partitions(self) -> Mapping[str, int]:
        """Number of partitions of each coordinator's topic."""
        return {
            OFFSETS_TOPIC: self.config.offsets_topic_num_partitions,
            TRANSACTION_TOPIC: self.config.transaction_state_log_num_partitions,
            SHARE_STATE_TOPIC: self.config.share_coordinator_state_topic_num_partitions,
        }

    async def ensure_internal_topic(self, name: str) -> None:
        """Make a coordinator's topic where it is not there. Raises BrokerError."""
        await self.ensure_topic(name, self.internal_partitions[name], internal_topic_configs(self.config)[name])

    def log(self, topic: str, partition: int) -> Log:
        """The log of a partition. Raises BrokerError: unknown_topic_or_partition, kafka_storage_error."""
        log = self.logs.get(topic, partition)
        if log is None:
            raise BrokerError(ErrorCode.unknown_topic_or_partition, f"there is no partition {topic}-{partition}")
        return log

    def topic_name(self, topic_id: UUID) -> str:
        """Raises BrokerError: unknown_topic_id."""
        known = self.topics.by_id(topic_id)
        if known is None:
            raise BrokerError(ErrorCode.unknown_topic_id, f"there is no topic with id {topic_id}")
        return known.name

    async def save(self, what: str, save: Callable[..., object], *arguments: Any) -> None:
        """Write a state file. Raises BrokerError: kafka_storage_error. what: the content, in words."""
        try:
            await self.run_blocking(save, *arguments)
        except OSError as error:
            raise BrokerError(ErrorCode.kafka_storage_error, f"{what} could not be written: {error}") from None

    def check_not_mirrored(self, what: str) -> None:
        """Raise BrokerError policy_violation, which clients do not try again, while topics mirror another cluster's.
        what: that clients may not do then."""
        if self.mirrored is not None:
            raise BrokerError(
                ErrorCode.policy_violation, f"{what}: this broker mirrors {self.mirrored} and is read-only; write there"
            )

    async def flush_if_due(self, log: Log) -> None:
        """Flush a due log: with flush.messages=1 before returning, else in the background. Raises BrokerError.

        Only for what clients and markers write. Logs of coordinators are flushed by the dispatcher (LogFlushes).
        """
        if log.needs_flush(self.clock.now_ms()):
            if log.config.flush_messages == EVERY_APPEND:
                await self.flushes.flush(log, log.log_end_offset)
            else:
                self.logs.flush_soon(log)

    async def producer_id_is_there(self) -> None:
        """Return when producer_ids.next() will give an id in this turn of the loop. Raises BrokerError."""
        while self.producer_ids.is_empty:
            try:
                await self.run_blocking(self.producer_ids.fetch)
            except OSError as error:
                raise BrokerError(
                    ErrorCode.coordinator_not_available, f"no producer id to give out: {error}"
                ) from error
