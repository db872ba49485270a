"""Checks of topics to be created and enlarged. They follow ReplicationControlManager, and errors have its words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from kafkalog_broker.broker import Broker
from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.topic_registry import Topic

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
        why = "Replication factor must be larger than 0, or -1 to use the default value."
        raise BrokerError(ErrorCode.invalid_replication_factor, why)
    partitions = broker.config.num_partitions if new.partitions == DEFAULT else new.partitions
    if partitions < 1:
        why = "Number of partitions was set to an invalid non-positive value."
        raise BrokerError(ErrorCode.invalid_partitions, why)
    if replicas > 1:
        raise BrokerError(
            ErrorCode.invalid_replication_factor,
            f"Unable to replicate the partition {replicas} time(s): The target replication factor of {replicas} cannot "
            "be reached because only 1 broker(s) are registered or some brokers have all their log directories "
            "cordoned.",
        )
    return partitions, config


_TOO_MANY_PARTITIONS = (ErrorCode.policy_violation, "Excessively large number of partitions per request.")


def check_totals(broker: Broker, topics: Iterable[tuple[int, int]]) -> None:
    """Raises BrokerError (POLICY_VIOLATION) for more new partitions than one request may ask for. topics: (number of
    partitions or DEFAULT, assignments) of each (ReplicationControlManager.validateTotalNumberOfPartitions)."""
    default = broker.config.num_partitions
    total = sum(assigned or (default if asked == DEFAULT else max(asked, 0)) for asked, assigned in topics)
    if total > MAX_PARTITIONS_PER_REQUEST:
        raise BrokerError(*_TOO_MANY_PARTITIONS)


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
    broker: Broker, name: str, total: int, assignments: Sequence[Sequence[int]] | None, left: int
) -> Topic:
    """The topic, if it may have `total` partitions. left: new ones left to the request. Raises BrokerError."""
    topic = broker.topics.get(name)
    if topic is None:
        raise BrokerError(ErrorCode.unknown_topic_or_partition, f"topic '{name}' does not exist")
    if total == topic.partitions:
        raise BrokerError(ErrorCode.invalid_partitions, f"Topic already has {total} partition(s).")
    if total < topic.partitions:
        why = f"The topic {name} currently has {topic.partitions} partition(s); {total} would not be an increase."
        raise BrokerError(ErrorCode.invalid_partitions, why)
    more = total - topic.partitions
    if more > left:
        raise BrokerError(*_TOO_MANY_PARTITIONS)
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


LogConfigs = Callable[[Mapping[str, str | None]], LogConfig]


def log_configs(broker: Broker) -> LogConfigs:
    """Log configurations by overrides: equal ones are one object. The function raises BrokerError (INVALID_CONFIG)."""

    @cache
    def made(configs: tuple[tuple[str, str | None], ...]) -> LogConfig:
        nulls = sorted(name for name, value in configs if value is None)
        if nulls:
            why = f"Null value not supported for topic configs: {','.join(nulls)}"
            raise BrokerError(ErrorCode.invalid_config, why)
        try:
            config = LogConfig.of(broker.config, {name: value for name, value in configs if value is not None})
            config.check_remote_storage()
        except ConfigError as error:
            raise BrokerError(ErrorCode.invalid_config, error.what) from None
        return config

    return lambda configs: made(tuple(configs.items()))


def _assigned_partitions(broker: Broker, new: NewTopic) -> int:
    for value, what in ((new.replicas, "replication factor"), (new.partitions, "numPartitions")):
        if value != DEFAULT:
            why = f"A manual partition assignment was specified, but {what} was not set to -1."
            raise BrokerError(ErrorCode.invalid_request, why)
    times = Counter(index for index, _ in new.assignments)
    for index, nodes in new.assignments:
        check_assignment(broker, nodes)
        if times[index] > 1:
            why = f"Found multiple manual partition assignments for partition {index}"
            raise BrokerError(ErrorCode.invalid_replica_assignment, why)
    if sorted(index for index, _ in new.assignments) != list(range(len(new.assignments))):
        why = "partitions should be a consecutive 0-based integer sequence"
        raise BrokerError(ErrorCode.invalid_replica_assignment, why)
    return len(new.assignments)
