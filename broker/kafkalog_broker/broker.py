"""The parts of a running broker, which handlers of requests use.

`server.py` makes the parts in the order of their dependencies, and then the Broker. Parts do not use this class: each
gets other parts as arguments.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.current_config import CurrentConfig
from kafkalog_broker.config.dynamic_configs import DynamicConfigs
from kafkalog_broker.config.internal_topic_configs import internal_topic_configs
from kafkalog_broker.config.listeners import Listener
from kafkalog_broker.config.state_copies import StateCopies
from kafkalog_broker.coordinator.log_flushes import LogFlushes
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.fetching.fetch import Fetcher
from kafkalog_broker.groups.group_coordinator import GroupCoordinator
from kafkalog_broker.protocol.served_apis import ServedApis
from kafkalog_broker.quotas.client_quotas import ClientQuotas
from kafkalog_broker.quotas.quota_entity import Quotas
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.runtime.lifecycle import Lifecycle
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
from kafkalog_broker.storage.partitions import Partitions
from kafkalog_broker.storage.producer_ids import ProducerIds
from kafkalog_broker.storage.topic import Topic
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_broker.telemetry.client_instances import ClientInstances
from kafkalog_broker.transactions.transaction_coordinator import TransactionCoordinator
from kafkalog_broker.transactions.transaction_ends import TransactionEnds
from kafkalog_broker.transactions.transaction_marker import WriteMarker
from kafkalog_spark.format.names import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC

if TYPE_CHECKING:
    from kafkalog_broker.remote.remote_log_manager import RemoteLogManager  # loaded only with remote storage


@dataclass(kw_only=True, eq=False)
class Broker:
    """A complete broker. Everything runs in one event loop; `run_blocking` and `run_computing` run work in threads."""

    current_config: CurrentConfig
    clock: Clock
    lifecycle: Lifecycle
    cluster_id: str
    advertised: tuple[Listener, ...]  # the listeners as clients reach them, with bound ports
    mirror_source: str | None  # addresses of the mirrored cluster; None unless the broker serves a mirror

    workers: Workers
    apis: ServedApis
    authorizer: Authorizer | None
    scram_users: ScramUsers
    tls: Tls
    quotas: ClientQuotas
    quota_file: StateCopies[Quotas]
    traffic: Traffic | None  # counts for the metrics; None without them
    telemetry: ClientInstances

    dynamic_configs: DynamicConfigs
    topics: TopicRegistry
    logs: LogManager
    partitions: Partitions
    producer_ids: ProducerIds
    flushes: LogFlushes
    remote: RemoteLogManager | None  # None without remote.log.storage.system.enable
    fetcher: Fetcher

    groups: GroupCoordinator
    transactions: TransactionCoordinator
    transaction_ends: TransactionEnds
    write_marker: WriteMarker
    share_coordinator: ShareCoordinator
    share_partitions: SharePartitionManager

    create_missing_topic: Callable[[Broker, str, int, Mapping[str, str]], Awaitable[Topic]]
    """admin.topic_creation.ensure_topic, which this module may not import."""

    appender: Appender = field(init=False)
    internal_topic_lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # held while an internal topic is created
    alteration_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while configuration, quotas, SCRAM users or ACLs are altered."""
    directory_renames: dict[str, asyncio.Event] = field(default_factory=dict)
    """Deleted topics whose directories are being renamed. The creation of a topic of that name waits for the event."""
    config_descriptions: tuple[BrokerConfig, dict[Any, bytes]] = field(init=False)
    """Cache of DescribeConfigs: the configuration for which it is valid, and encoded responses."""

    def __post_init__(self) -> None:
        self.node_id = self.config.node_id
        self.config_descriptions = (self.config, {})
        self.appender = Appender(self.workers, self.clock, self.flush_if_due)
        self.run_blocking, self.run_computing = self.workers.run_blocking, self.workers.run_computing

    @property
    def config(self) -> BrokerConfig:
        """The configuration in force."""
        return self.current_config.get()

    def updating_config(self, config: BrokerConfig) -> Generator[None, None, None]:
        """Put another configuration in force: for new connections immediately, for logs step by step."""
        self.current_config.replace(config)
        yield from self.logs.updating_config(config)

    @property
    def internal_partitions(self) -> Mapping[str, int]:
        """Number of partitions of each coordinator's topic."""
        return internal_partitions(self.config)

    async def ensure_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
        """Return a topic, and create it if it does not exist. Raises BrokerError."""
        return await self.create_missing_topic(self, name, partitions, configs)

    async def ensure_internal_topic(self, name: str) -> None:
        """Create a coordinator's topic if it does not exist. Raises BrokerError."""
        await self.ensure_topic(name, self.internal_partitions[name], internal_topic_configs(self.config)[name])

    def log(self, topic: str, partition: int) -> Log:
        """Return the log of a partition. Raises BrokerError as `Partitions.log`."""
        return self.partitions.log(topic, partition)

    def topic_name(self, topic_id: UUID) -> str:
        """Return the name of a topic. Raises BrokerError: unknown_topic_id."""
        return self.partitions.topic_name(topic_id)

    async def save(self, content: str, write: Callable[..., object], *arguments: Any) -> None:
        """Write a state file in a thread.

        Args:
            content: Name of the content, for the error message.
            write: Function that writes the file.
            arguments: Arguments of `write`.

        Raises:
            BrokerError: kafka_storage_error if the file cannot be written.
        """
        try:
            await self.run_blocking(write, *arguments)
        except OSError as error:
            raise BrokerError(ErrorCode.kafka_storage_error, f"{content} could not be written: {error}") from None

    def check_not_mirrored(self, refusal: str) -> None:
        """Refuse a change of topics or records if the broker serves a mirror.

        Args:
            refusal: What is refused, such as "topics cannot be deleted", for the error message.

        Raises:
            BrokerError: policy_violation, which clients do not retry.
        """
        if self.mirror_source is not None:
            raise BrokerError(
                ErrorCode.policy_violation,
                f"{refusal}: this broker mirrors {self.mirror_source} and is read-only; write there",
            )

    async def flush_if_due(self, log: Log) -> None:
        """Flush a log if it is due: before returning with flush.messages=1, otherwise in the background.

        Call it after writes of clients and markers only. Logs of coordinators are flushed by the dispatcher
        (`LogFlushes`). Raises BrokerError.
        """
        if log.needs_flush(self.clock.now_ms()):
            if log.config.flush_messages == EVERY_APPEND:
                await self.flushes.flush(log, log.log_end_offset)
            else:
                self.logs.flush_soon(log)

    async def wait_for_producer_id(self) -> None:
        """Return once `producer_ids.next()` can return an ID. The caller must call it without awaiting in between.

        Raises:
            BrokerError: coordinator_not_available if no block of IDs can be reserved on disk.
        """
        while self.producer_ids.is_empty:
            try:
                await self.run_blocking(self.producer_ids.fetch)
            except OSError as error:
                raise BrokerError(
                    ErrorCode.coordinator_not_available, f"no producer id is available: {error}"
                ) from error


def internal_partitions(config: BrokerConfig) -> Mapping[str, int]:
    """Return the number of partitions of each coordinator's topic."""
    return {
        OFFSETS_TOPIC: config.offsets_topic_num_partitions,
        TRANSACTION_TOPIC: config.transaction_state_log_num_partitions,
        SHARE_STATE_TOPIC: config.share_coordinator_state_topic_num_partitions,
    }
