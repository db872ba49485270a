"""Creating, deleting and enlarging topics. Checks follow ReplicationControlManager, and errors have its words.

What changes is on disk before a coroutine here returns: the registry in a thread, the logs in the loop that owns them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from broker.config.definition import ConfigError
from broker.config.internal_topics import TRANSACTION_TOPIC
from broker.config.log_config import LogConfig
from broker.errors import BrokerError, ErrorCode
from broker.storage.topic_registry import Topic, check_topic_name

if TYPE_CHECKING:
    from broker.server import Broker

_log = logging.getLogger("kafkalog.broker")

_ensuring: WeakKeyDictionary[Broker, asyncio.Lock] = WeakKeyDictionary()
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


def check_new_topic(broker: Broker, new: NewTopic) -> tuple[int, LogConfig]:
    """Number of partitions and configuration of a topic that may be created. Raises BrokerError."""
    check_topic_name(new.name)
    broker.topics.check_new(new.name, 1)
    config = _log_config(broker, new.configs)
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


def check_total(partitions: int) -> None:
    """Raises BrokerError (POLICY_VIOLATION) for more new partitions than one request may ask for."""
    if partitions > MAX_PARTITIONS_PER_REQUEST:
        raise BrokerError(ErrorCode.policy_violation, "Excessively large number of partitions per request.")


async def create_topic(broker: Broker, new: NewTopic) -> Topic:
    """Make the topic and its empty logs. Raises BrokerError."""
    partitions, config = check_new_topic(broker, new)
    check_total(partitions)
    overrides = {name: value for name, value in new.configs.items() if value is not None}
    topic: Topic = await broker.run_blocking(broker.topics.create, new.name, partitions, overrides)
    try:
        await _create_logs(broker, topic, range(partitions), config)
    except BrokerError:
        if _take_back(broker, topic, range(partitions)):
            await broker.run_blocking(_forget, broker, topic)
            broker.logs.delete_topic(topic)
        raise
    _log.info("topic %s is created with %d partitions and %s", new.name, partitions, overrides or "default settings")
    return topic


async def ensure_topic(broker: Broker, new: NewTopic) -> Topic:
    """The topic of that name, created when there is none; whoever asks meanwhile waits. Raises BrokerError."""
    async with _ensuring.setdefault(broker, asyncio.Lock()):
        return broker.topics.get(new.name) or await create_topic(broker, new)


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


def check_more_partitions(broker: Broker, name: str, total: int, assignments: Sequence[Sequence[int]] | None) -> Topic:
    """The topic, when it may be given `total` partitions. Raises BrokerError."""
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
    check_total(more)
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


async def add_partitions(broker: Broker, name: str, total: int) -> Topic:
    """Enlarge a topic. Raises BrokerError."""
    before = check_more_partitions(broker, name, total, None)
    topic: Topic = await broker.run_blocking(broker.topics.add_partitions, name, total)
    try:
        await _create_logs(broker, topic, range(before.partitions, total), LogConfig.of(broker.config, topic.configs))
    except BrokerError:
        if _take_back(broker, topic, range(before.partitions, total)):
            await broker.run_blocking(broker.topics.take_partitions_back, topic, before.partitions)
        raise
    _log.info("topic %s has %d partitions now, it had %d", name, total, before.partitions)
    return topic


async def delete_topic(broker: Broker, name: str) -> Topic:
    """Forget a topic and rename its directories; the files go after file.delete.delay.ms. Raises BrokerError."""
    topic: Topic = await broker.run_blocking(broker.topics.delete, name)
    broker.logs.delete_topic(topic)
    broker.groups.on_topic_deleted(name)
    if name == TRANSACTION_TOPIC:
        broker.transactions.table.close_all()
    _log.info("topic %s is deleted", name)
    return topic


async def _create_logs(broker: Broker, topic: Topic, indexes: range, config: LogConfig) -> None:
    """The directories first, with one fsync for all; then log by log, since others want to be served.

    Raises BrokerError when one of them fails; the caller takes back what was made.
    """
    places = broker.logs.place(topic.name, indexes)
    try:
        await broker.run_blocking(places.make)
        for index in indexes:
            if broker.topics.by_id(topic.id) is None:
                return  # deleted in the meantime
            broker.logs.create(topic.name, index, topic.id, config, places)
            await asyncio.sleep(0)
    finally:
        places.remove_unused()


def _take_back(broker: Broker, topic: Topic, indexes: range) -> bool:
    """Delete the logs of partitions that could not all be made. False when there is nothing to take back: the topic was
    deleted meanwhile, or somebody has written to one of them already. Then they stay, and those that are missing are
    offline until the next start."""
    if broker.topics.by_id(topic.id) is None:
        return False
    made = [index for name, index in broker.logs.partitions(topic.name) if index in indexes]
    if any(_holds_records(broker, topic.name, index) for index in made):
        broker.logs.miss(topic.name, set(indexes) - set(made))
        return False
    for index in made:
        broker.logs.delete(topic.name, index)
    return True


def _holds_records(broker: Broker, topic: str, index: int) -> bool:
    try:
        return broker.log(topic, index).log_end_offset > 0
    except BrokerError:  # offline: nobody can have written to it
        return False


def _forget(broker: Broker, topic: Topic) -> None:
    if broker.topics.by_id(topic.id) is not None:
        broker.topics.delete(topic.name)


def _log_config(broker: Broker, configs: Mapping[str, str | None]) -> LogConfig:
    nulls = [name for name, value in configs.items() if value is None]
    if nulls:
        raise BrokerError(
            ErrorCode.invalid_config, f"Null value not supported for topic configs: {','.join(sorted(nulls))}"
        )
    try:
        return LogConfig.of(broker.config, {name: value for name, value in configs.items() if value is not None})
    except ConfigError as error:
        raise BrokerError(ErrorCode.invalid_config, error.what) from None


def _assigned_partitions(broker: Broker, new: NewTopic) -> int:
    for value, what in ((new.replicas, "replication factor"), (new.partitions, "numPartitions")):
        if value != DEFAULT:
            raise BrokerError(
                ErrorCode.invalid_request,
                f"A manual partition assignment was specified, but {what} was not set to -1.",
            )
    for index, nodes in new.assignments:
        check_assignment(broker, nodes)
        if sum(other == index for other, _ in new.assignments) > 1:
            raise BrokerError(
                ErrorCode.invalid_replica_assignment,
                f"Found multiple manual partition assignments for partition {index}",
            )
    if sorted(index for index, _ in new.assignments) != list(range(len(new.assignments))):
        raise BrokerError(
            ErrorCode.invalid_replica_assignment, "partitions should be a consecutive 0-based integer sequence"
        )
    return len(new.assignments)
