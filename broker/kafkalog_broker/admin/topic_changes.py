"""Creating, deleting and enlarging topics. Checks follow ReplicationControlManager, and errors have its words.

What changes is on disk before a coroutine returns: the registry in a thread, in one write for a request, the logs in
the loop that owns them, where others have their turn in between."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, NamedTuple

from kafkalog_broker.broker import Broker
from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.log_config import LogConfig, served_topic_properties
from kafkalog_broker.config.properties import note_of_unserved
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.storage.new_partitions import NewPartitions
from kafkalog_broker.storage.partition_removal import PartitionRemoval, combined
from kafkalog_broker.storage.topic import Topic
from kafkalog_broker.storage.topic_registry import Outcome
from kafkalog_spark.format.names import OFFSETS_TOPIC, TRANSACTION_TOPIC, is_internal, metrics_name
from kafkalog_spark.format.partition_metadata import new_uuid

_log = logging.getLogger(__name__)

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


Charge = Callable[[int], None]
"""Called with the number of partitions that a topic is about to gain or lose, once nothing else is in the way. Raises
BrokerError where that is beyond a quota: what became of the topic."""


def _free(partitions: int) -> None:
    """Charge of changes that are free: the broker's own, and all where there are no quotas."""


async def create_topics(
    broker: Broker, wanted: Sequence[NewTopic], charge: Charge = _free, *, validate_only: bool = False
) -> list[Outcome]:
    """Make topics and their empty logs, all in one write of the registry: what became of each, in order. Names must
    differ. validate_only: they are only checked."""
    turn = TimeSlice()
    outcomes: dict[str, Outcome] = {}
    topics, configs = [], {}
    folded: set[str] = set()  # two names that collide: the registry refuses the second, which costs nothing
    configs_of = log_configs(broker)
    async for new in turn.spread(wanted):
        try:
            if not (validate_only or is_internal(new.name)):
                broker.check_not_mirrored(f"topic {new.name} cannot be created")
            partitions, configs[new.name] = check_new_topic(broker, new, configs_of)
            if not validate_only and metrics_name(new.name) not in folded:
                charge(partitions)
                folded.add(metrics_name(new.name))
            overrides = {name: value for name, value in new.configs.items() if value is not None}
            topics.append(Topic(new.name, new_uuid(), partitions, overrides))
        except BrokerError as error:
            outcomes[new.name] = error
    if validate_only:
        outcomes |= {topic.name: topic for topic in topics}
        return [outcomes[new.name] for new in wanted]
    for topic in topics:
        while (leaving := broker.leaving.get(topic.name)) is not None:
            await leaving.wait()
    registered = await _in_registry(broker, broker.topics.create_all, topics)
    for topic, outcome in zip(topics, registered, strict=True):
        outcomes[topic.name] = outcome
    new_logs = [
        NewLogs(topic, range(topic.partitions), configs[topic.name]) for topic in registered if isinstance(topic, Topic)
    ]
    failed = await _create_logs(broker, new_logs)
    if failed:
        gone = [logs.topic for logs, _ in failed if await _take_back(broker, logs)]
        await broker.run_blocking(broker.topics.delete_if_there, gone)
        await broker.run_blocking(broker.logs.forget_deleted, gone)  # their logs are gone already
        for logs, why in failed:
            outcomes[logs.topic.name] = _as_answer(why, f"topic {logs.topic.name} cannot be created")
    async for logs in turn.spread(new_logs):
        if outcomes[logs.topic.name] is logs.topic:
            unserved = note_of_unserved(logs.topic.configs, served_topic_properties())
            _log.info(
                "topic %s is created with %d partitions and %.1000s%s",
                logs.topic.name, logs.topic.partitions, logs.topic.configs or "default settings", unserved,
            )  # fmt: skip
    return [outcomes[new.name] for new in wanted]


async def ensure_topic(broker: Broker, name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
    """The topic of that name, created when there is none; whoever asks meanwhile waits. For internal topics: they have
    one replica, whatever default.replication.factor is. Raises BrokerError."""
    async with broker.ensuring:
        topic = broker.topics.get(name)
        if topic is not None:
            return topic
        check_totals(broker, [(partitions, 0)])
        (made,) = await create_topics(broker, [NewTopic(name, partitions, 1, configs=configs)])
    if isinstance(made, BrokerError):
        raise made
    return made


async def add_partitions(broker: Broker, totals: Mapping[str, int], charge: Charge = _free) -> list[Outcome]:
    """Enlarge topics to so many partitions, all in one write of the registry: what became of each, in order."""
    try:
        broker.check_not_mirrored("topics cannot be given more partitions")
    except BrokerError as error:
        return [error] * len(totals)
    before = {name: topic.partitions for name in totals if (topic := broker.topics.get(name)) is not None}
    beyond = await _charged(charge, ((name, totals[name] - partitions) for name, partitions in before.items()))
    admitted = {name: total for name, total in totals.items() if name not in beyond}
    outcomes = await _in_registry(broker, broker.topics.add_all_partitions, admitted)
    configs_of = log_configs(broker)
    new_logs = [
        NewLogs(topic, range(before[topic.name], topic.partitions), configs_of(topic.configs))
        for topic in outcomes
        if isinstance(topic, Topic)
    ]
    failed = await _create_logs(broker, new_logs)
    if failed:
        gone = [(logs.topic, logs.partitions.start) for logs, _ in failed if await _take_back(broker, logs)]
        await broker.run_blocking(broker.topics.take_partitions_back, gone)
    became = {**dict(zip(admitted, outcomes, strict=True)), **beyond}
    for logs, why in failed:
        name, total = logs.topic.name, logs.topic.partitions
        became[name] = _as_answer(why, f"topic {name} cannot be given {total} partitions")
    for topic, indexes, _ in new_logs:
        if became[topic.name] is topic:
            _log.info("topic %s has %d partitions now, it had %d", topic.name, topic.partitions, indexes.start)
    return [became[name] for name in totals]


async def delete_topics(broker: Broker, names: Sequence[str], charge: Charge = _free) -> list[Outcome]:
    """Forget topics, in one write of the registry, and rename their directories; the files go after
    file.delete.delay.ms. The topic that is gone, or the error, of each name, in order; names must differ."""
    try:
        broker.check_not_mirrored("topics cannot be deleted")
    except BrokerError as error:
        return [error] * len(names)
    costs = ((name, topic.partitions) for name in names if (topic := broker.topics.get(name)) is not None)
    beyond = await _charged(charge, costs)
    admitted = [name for name in names if name not in beyond]
    if not admitted:
        return [beyond[name] for name in names]
    turn, left, leaving = TimeSlice(), asyncio.Event(), broker.leaving
    ours = [name for name in admitted if leaving.setdefault(name, left) is left]
    try:
        outcomes = await _in_registry(broker, broker.topics.delete_all, admitted)
        topics = [topic for topic in outcomes if isinstance(topic, Topic)]
        removals: list[PartitionRemoval] = []
        async for topic in turn.spread(topics):
            removals.append(broker.logs.detach_topic(topic))
            if topic.name == TRANSACTION_TOPIC:
                broker.transactions.close_all()
            elif topic.name == OFFSETS_TOPIC:
                broker.groups.close_all()
            _log.info("topic %s is deleted", topic.name)
        became = {**dict(zip(admitted, outcomes, strict=True)), **beyond}
        if not topics:
            return [became[name] for name in names]
        if broker.remote is not None:
            for topic in topics:
                await broker.remote.topic_deleted(topic)
        removal = combined(removals, partial(broker.logs.forget_deleted, topics))
        try:
            await broker.run_blocking(removal.finish)
        except BrokerError as error:
            _log.error("%s", error)
    finally:
        for name in ours:
            del leaving[name]
        left.set()
    gone = {topic.id for topic in topics}
    broker.share_partitions.forget_topics(gone)
    async for _ in turn.spread(broker.groups.on_topics_deleted({topic.name for topic in topics}, gone)):
        pass
    async for _ in turn.spread(broker.share_coordinator.on_topics_deleted(gone)):
        pass
    return [removal.failed.get(name, became[name]) for name in names]


async def _charged(charge: Charge, costs: Iterable[tuple[str, int]]) -> dict[str, Outcome]:
    """Why not, for each topic whose partitions are beyond the quota."""
    beyond: dict[str, Outcome] = {}
    async for name, partitions in TimeSlice().spread(costs):
        try:
            charge(partitions)
        except BrokerError as error:
            beyond[name] = error
    return beyond


async def _in_registry(
    broker: Broker, change: Callable[[Any], list[Outcome]], wanted: Collection[Any]
) -> list[Outcome]:
    """Change the registry in a thread. When it cannot be written, that is what became of each."""
    try:
        return await broker.run_blocking(change, wanted)
    except BrokerError as error:
        return [error] * len(wanted)


class NewLogs(NamedTuple):
    topic: Topic
    partitions: range
    config: LogConfig


async def _create_logs(broker: Broker, wanted: Sequence[NewLogs]) -> list[tuple[NewLogs, Exception]]:
    """Make the files of all partitions in threads, then add the logs in turns with other requests. What failed is
    returned, and some of its logs may have been made."""
    if not wanted:
        return []
    turn = TimeSlice()
    try:
        topic_ids = {(logs.topic.name, index): logs.topic.id for logs in wanted for index in logs.partitions}
        places: NewPartitions = await broker.run_blocking(broker.logs.place_all, topic_ids)
    except BrokerError as error:  # no log directory is left
        return [(logs, error) for logs in wanted]
    failed: list[tuple[NewLogs, Exception]] = []
    try:
        for logs in wanted:
            try:
                async for index in turn.spread(logs.partitions):
                    if broker.topics.by_id(logs.topic.id) is None:
                        continue  # deleted in the meantime
                    broker.logs.create(logs.topic.name, index, logs.topic.id, logs.config, places)
            except Exception as error:  # noqa: BLE001 - whatever it is, what was begun has to be taken back
                failed.append((logs, error))
    finally:
        await broker.run_blocking(places.remove_unused)
    return failed


def _as_answer(error: Exception, what: str) -> BrokerError:
    """Error code of `error` for the client: UNKNOWN_SERVER_ERROR, and a traceback in the log, for a fault of ours."""
    if isinstance(error, BrokerError):
        return error
    _log.error("%s: %s: %s", what, type(error).__name__, error, exc_info=error)
    return BrokerError(ErrorCode.unknown_server_error, f"{what}: {type(error).__name__}: {error}")


async def _take_back(broker: Broker, logs: NewLogs) -> bool:
    """Delete the logs of partitions that could not all be made. False where they stay, as the topic was deleted
    meanwhile or somebody has written to one already: those that are missing are offline until the next start then."""
    topic, indexes, _ = logs
    if broker.topics.by_id(topic.id) is None:
        return False
    made = [index for name, index in broker.logs.partitions(topic.name) if index in indexes]
    if any(_holds_records(broker, topic.name, index) for index in made):
        not_made = ((topic.name, index) for index in set(indexes) - set(made))
        broker.logs.absent.update(dict.fromkeys(not_made, "its log could not be made"))
        return False
    await broker.run_blocking(broker.logs.detach((topic.name, index) for index in made).finish)
    return True


def _holds_records(broker: Broker, topic: str, index: int) -> bool:
    try:
        return broker.log(topic, index).log_end_offset > 0
    except BrokerError:  # offline: nobody can have written to it
        return False
