"""Checks of new topics and partitions, in the order and with the messages of Kafka's ReplicationControlManager."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from kafkalog_broker.broker import Broker
from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.topic import Topic

DEFAULT = -1
"""As a number of partitions or replicas: the broker's default."""

MAX_PARTITIONS_PER_REQUEST = 10_000  # ReplicationControlManager.MAX_PARTITIONS_PER_BATCH

LogConfigs = Callable[[Mapping[str, str | None]], LogConfig]
"""Function from overrides to a log configuration. Raises BrokerError (INVALID_CONFIG)."""


class PartitionAssignment(NamedTuple):
    """The nodes that a client chose for a partition of a new topic."""

    partition: int
    node_ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. With `assignments`, `partitions` and `replicas` must be DEFAULT."""

    name: str
    partitions: int = DEFAULT
    replicas: int = DEFAULT
    assignments: Sequence[PartitionAssignment] = ()
    configs: Mapping[str, str | None] = field(default_factory=dict)


class ValidTopic(NamedTuple):
    """Number of partitions and configuration of a new topic that passed all checks."""

    partitions: int
    config: LogConfig


def log_configs(broker: Broker) -> LogConfigs:
    """Return a function that makes log configurations and returns the same object for equal overrides."""

    @cache
    def make(configs: tuple[tuple[str, str | None], ...]) -> LogConfig:
        nulls = sorted(name for name, value in configs if value is None)
        if nulls:
            message = f"Null value not supported for topic configs: {','.join(nulls)}"
            raise BrokerError(ErrorCode.invalid_config, message)
        try:
            config = LogConfig.of(broker.config, {name: value for name, value in configs if value is not None})
            config.check_remote_storage()
        except ConfigError as error:
            raise BrokerError(ErrorCode.invalid_config, error.what) from None
        return config

    return lambda configs: make(tuple(configs.items()))


def validate_new_topic(broker: Broker, topic: NewTopic, log_config_of: LogConfigs) -> ValidTopic:
    """Check one topic of a request. Raises BrokerError."""
    broker.topics.check_new(topic.name, 1)
    config = log_config_of(topic.configs)
    if topic.assignments:
        return ValidTopic(_count_assigned_partitions(broker, topic), config)
    replicas = broker.config.default_replication_factor if topic.replicas == DEFAULT else topic.replicas
    if replicas < 1:
        message = "Replication factor must be larger than 0, or -1 to use the default value."
        raise BrokerError(ErrorCode.invalid_replication_factor, message)
    partitions = broker.config.num_partitions if topic.partitions == DEFAULT else topic.partitions
    if partitions < 1:
        message = "Number of partitions was set to an invalid non-positive value."
        raise BrokerError(ErrorCode.invalid_partitions, message)
    if replicas > 1:
        raise BrokerError(
            ErrorCode.invalid_replication_factor,
            f"Unable to replicate the partition {replicas} time(s): The target replication factor of {replicas} cannot "
            "be reached because only 1 broker(s) are registered or some brokers have all their log directories "
            "cordoned.",
        )
    return ValidTopic(partitions, config)


def validate_total_partitions(broker: Broker, topics: Iterable[NewTopic]) -> None:
    """Raise BrokerError (POLICY_VIOLATION) if topics have more partitions together than one request may create.

    Kafka: `ReplicationControlManager.validateTotalNumberOfPartitions`.
    """
    default = broker.config.num_partitions
    total = sum(
        len(topic.assignments) or (default if topic.partitions == DEFAULT else max(topic.partitions, 0))
        for topic in topics
    )
    if total > MAX_PARTITIONS_PER_REQUEST:
        raise _too_many_partitions()


def validate_new_partition_count(
    broker: Broker, name: str, total: int, assignments: Sequence[Sequence[int]] | None, remaining: int
) -> Topic:
    """Check a CreatePartitions request for one topic.

    Args:
        broker: Owner of the topic.
        name: Topic name.
        total: Requested number of partitions, the present ones included.
        assignments: Node IDs for each new partition, if the client chose them.
        remaining: How many partitions the request may still add.

    Returns:
        The topic with its present number of partitions.

    Raises:
        BrokerError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, POLICY_VIOLATION or INVALID_REPLICA_ASSIGNMENT.
    """
    topic = broker.topics.get(name)
    if topic is None:
        raise BrokerError(ErrorCode.unknown_topic_or_partition, f"topic '{name}' does not exist")
    if total == topic.partitions:
        raise BrokerError(ErrorCode.invalid_partitions, f"Topic already has {total} partition(s).")
    if total < topic.partitions:
        message = f"The topic {name} currently has {topic.partitions} partition(s); {total} would not be an increase."
        raise BrokerError(ErrorCode.invalid_partitions, message)
    added = total - topic.partitions
    if added > remaining:
        raise _too_many_partitions()
    if assignments is not None:
        if len(assignments) != added:
            raise BrokerError(
                ErrorCode.invalid_replica_assignment,
                f"Attempted to add {added} additional partition(s), but only {len(assignments)} assignment(s) were "
                "specified.",
            )
        for node_ids in assignments:
            validate_assignment(broker, node_ids)
    return topic


def validate_assignment(broker: Broker, node_ids: Sequence[int]) -> None:
    """Raise BrokerError (INVALID_REPLICA_ASSIGNMENT) unless `node_ids` contains exactly this node, once."""
    message = None
    unknown = [node_id for node_id in node_ids if node_id != broker.node_id]
    if not node_ids:
        message = "an empty replica list."
    elif unknown:
        message = f"broker {unknown[0]}, but no such broker is registered."
    elif len(node_ids) > 1:
        message = f"the broker {broker.node_id} more than once."
    if message:
        raise BrokerError(ErrorCode.invalid_replica_assignment, f"The manual partition assignment includes {message}")


def _count_assigned_partitions(broker: Broker, topic: NewTopic) -> int:
    """Return the number of partitions of a topic with assignments. Raises BrokerError."""
    for value, name in ((topic.replicas, "replication factor"), (topic.partitions, "numPartitions")):
        if value != DEFAULT:
            message = f"A manual partition assignment was specified, but {name} was not set to -1."
            raise BrokerError(ErrorCode.invalid_request, message)
    occurrences = Counter(assignment.partition for assignment in topic.assignments)
    for assignment in topic.assignments:
        validate_assignment(broker, assignment.node_ids)
        if occurrences[assignment.partition] > 1:
            message = f"Found multiple manual partition assignments for partition {assignment.partition}"
            raise BrokerError(ErrorCode.invalid_replica_assignment, message)
    if sorted(assignment.partition for assignment in topic.assignments) != list(range(len(topic.assignments))):
        message = "partitions should be a consecutive 0-based integer sequence"
        raise BrokerError(ErrorCode.invalid_replica_assignment, message)
    return len(topic.assignments)


def _too_many_partitions() -> BrokerError:
    return BrokerError(ErrorCode.policy_violation, "Excessively large number of partitions per request.")
