"""Checks of topics to be created and enlarged. They follow ReplicationControlManager, and errors have its words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from kafkalog_broker.broker import Broker
from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.metadata_response import (
    OPERATIONS_NOT_ASKED_FOR,
    ZERO_ID,
    PartitionMetadata,
    TopicMetadata,
)
from kafkalog_broker.storage.log_table import LogEntry
from kafkalog_broker.storage.topic_registry import Topic
from kafkalog_spark.format.names import is_internal

DEFAULT = -1
MAX_PARTITIONS_PER_REQUEST = 10_000  # ReplicationControlManager.MAX_PARTITIONS_PER_BATCH


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be made. `partitions`, `replicas`: DEFAULT takes the broker's. `assignments`: partition to nodes, when
    the client chose them; then both must be DEFAULT."""

    name: str
    partitions: int = DEFAULT
    replicas: int = DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Mapping[str, str | None] = field(default_factory=dict)


def check_new_topic(broker: Broker, new: NewTopic, configs_of: LogConfigs) -> tuple[int, LogConfig]:
    """Number of partitions and configuration of a topic that may be created. Raises BrokerError."""
    broker.topics.check_new(new.name, 1)
    config = configs_of(new.configs)
    if new.assignments:
        return _assigned_partitions(broker, new), config
    replicas = broker.config.default_replication_factor if new.replicas == DEFAULT else new.replicas
    if replicas < 1:
        raise BrokerError(
            ErrorCode.invalid_replication_factor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    partitions = broker.config.num_partitions if new.partitions == DEFAULT else new.partitions
    if partitions < 1:
        raise BrokerError(
            ErrorCode.invalid_partitions, "Number of partitions was set to an invalid non-positive value."
        )
    if replicas > 1:
        raise BrokerError(
            ErrorCode.invalid_replication_factor,
            f"Unable to replicate the partition {replicas} time(s): The target replication factor of {replicas} cannot "
            "be reached because only 1 broker(s) are registered or some brokers have all their log directories "
            "cordoned.",
        )
    return partitions, config


def _too_many_partitions() -> BrokerError:
    return BrokerError(ErrorCode.policy_violation, "Excessively large number of partitions per request.")


def check_totals(broker: Broker, topics: Iterable[tuple[int, int]]) -> None:
    """Raises BrokerError (POLICY_VIOLATION) for more new partitions than one request may ask for. topics: (number of
    partitions or DEFAULT, assignments) of each (ReplicationControlManager.validateTotalNumberOfPartitions)."""
    total = 0
    for partitions, assignments in topics:
        if assignments:
            total += assignments
        elif partitions == DEFAULT:
            total += broker.config.num_partitions
        else:
            total += max(partitions, 0)
    if total > MAX_PARTITIONS_PER_REQUEST:
        raise _too_many_partitions()


def check_assignment(broker: Broker, nodes: Sequence[int]) -> None:
    """Raises BrokerError (INVALID_REPLICA_ASSIGNMENT) for anything but this node, once."""
    why = None
    strangers = [node for node in nodes if node != broker.node_id]
    if not nodes:
        why = "an empty replica list."
    elif strangers:
        why = f"broker {strangers[0]}, but no such broker is registered."
    elif len(nodes) > 1:
        why = f"the broker {broker.node_id} more than once."
    if why:
        raise BrokerError(ErrorCode.invalid_replica_assignment, f"The manual partition assignment includes {why}")


def check_more_partitions(
    broker: Broker,
    name: str,
    total: int,
    assignments: Sequence[Sequence[int]] | None,
    left: int = MAX_PARTITIONS_PER_REQUEST,
) -> Topic:
    """The topic, when it may be given `total` partitions. left: new ones that the request may still ask for. Raises
    BrokerError."""
    topic = broker.topics.get(name)
    if topic is None:
        raise BrokerError(ErrorCode.unknown_topic_or_partition, f"topic '{name}' does not exist")
    if total == topic.partitions:
        raise BrokerError(ErrorCode.invalid_partitions, f"Topic already has {total} partition(s).")
    if total < topic.partitions:
        raise BrokerError(
            ErrorCode.invalid_partitions,
            f"The topic {name} currently has {topic.partitions} partition(s); {total} would not be an increase.",
        )
    more = total - topic.partitions
    if more > left:
        raise _too_many_partitions()
    if assignments is not None:
        if len(assignments) != more:
            raise BrokerError(
                ErrorCode.invalid_replica_assignment,
                f"Attempted to add {more} additional partition(s), but only {len(assignments)} assignment(s) were "
                "specified.",
            )
        for nodes in assignments:
            check_assignment(broker, nodes)
    return topic


class LogConfigs:
    """The log configurations of a request's topics: most have the same overrides, and then the same object."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._made: dict[tuple[tuple[str, str | None], ...], LogConfig] = {}

    def __call__(self, configs: Mapping[str, str | None]) -> LogConfig:
        """Raises BrokerError (INVALID_CONFIG)."""
        key = tuple(configs.items())
        if key in self._made:
            return self._made[key]
        nulls = [name for name, value in configs.items() if value is None]
        if nulls:
            raise BrokerError(
                ErrorCode.invalid_config, f"Null value not supported for topic configs: {','.join(sorted(nulls))}"
            )
        try:
            config = LogConfig.of(
                self._broker.config, {name: value for name, value in configs.items() if value is not None}
            )
            config.check_remote_storage()
        except ConfigError as error:
            raise BrokerError(ErrorCode.invalid_config, error.what) from None
        self._made[key] = config
        return config


def _assigned_partitions(broker: Broker, new: NewTopic) -> int:
    for value, what in ((new.replicas, "replication factor"), (new.partitions, "numPartitions")):
        if value != DEFAULT:
            raise BrokerError(
                ErrorCode.invalid_request,
                f"A manual partition assignment was specified, but {what} was not set to -1.",
            )
    times = Counter(index for index, _ in new.assignments)
    for index, nodes in new.assignments:
        check_assignment(broker, nodes)
        if times[index] > 1:
            raise BrokerError(
                ErrorCode.invalid_replica_assignment,
                f"Found multiple manual partition assignments for partition {index}",
            )
    if sorted(index for index, _ in new.assignments) != list(range(len(new.assignments))):
        raise BrokerError(
            ErrorCode.invalid_replica_assignment, "partitions should be a consecutive 0-based integer sequence"
        )
    return len(new.assignments)


# Topics and their partitions as plain tuples, for Metadata and DescribeTopicPartitions.

NO_LEADER = -1


def partition_metadata(broker: Broker, topic: Topic, index: int) -> PartitionMetadata:
    """This node leads every partition that it has; one in a failed log directory has no leader."""
    nodes = (broker.node_id,)
    if broker.logs.is_online(topic.name, index):
        try:
            return PartitionMetadata(index, broker.node_id, nodes, nodes, broker.logs.leader_epoch(topic.name, index))
        except BrokerError:  # its directory went offline just now
            pass
    return PartitionMetadata(index, NO_LEADER, nodes, nodes, 0, nodes, error_code=int(ErrorCode.leader_not_available))


async def learn_leader_epochs(broker: Broker, topics: Iterable[Topic]) -> None:
    """Before topics are described: logs that were not opened yet, maybe thousands, are looked at in a thread, so that
    others are served meanwhile."""
    unknown = broker.logs.unknown_leader_epochs(topics)
    if unknown:
        await broker.run_blocking(_read_leader_epochs, unknown)


def _read_leader_epochs(entries: Sequence[LogEntry]) -> None:
    for entry in entries:
        entry.read_leader_epoch()


def topic_metadata(
    broker: Broker,
    topic: Topic,
    *,
    operations: int = OPERATIONS_NOT_ASKED_FOR,
    partitions: Sequence[int] | None = None,
) -> TopicMetadata:
    """All partitions of a topic, or those given."""
    indexes = range(topic.partitions) if partitions is None else partitions
    return TopicMetadata(
        topic.name,
        topic.id,
        [partition_metadata(broker, topic, index) for index in indexes],
        is_internal=is_internal(topic.name),
        topic_authorized_operations=operations,
    )


def missing_topic(
    code: ErrorCode, name: str | None, topic_id: UUID = ZERO_ID, *, operations: int = OPERATIONS_NOT_ASKED_FOR
) -> TopicMetadata:
    return TopicMetadata(name, topic_id, (), int(code), name is not None and is_internal(name), operations)
