"""Creating, deleting and enlarging topics. Checks follow ReplicationControlManager, and errors have its words.

What changes is on disk before a coroutine here returns: the registry in a thread, the logs in the loop that owns them.
What one request names is one write of the registry; between two topics others have their turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kafkalog_broker.config.broker_properties import note_of_unserved
from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.internal_topics import TRANSACTION_TOPIC
from kafkalog_broker.config.log_config import LogConfig, served_topic_properties
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.departure import together
from kafkalog_broker.storage.log_dir import new_uuid
from kafkalog_broker.storage.topic_registry import Outcome, Topic, check_topic_name
from kafkalog_broker.turn import Turn

if TYPE_CHECKING:
    from kafkalog_broker.broker import Broker
    from kafkalog_broker.storage.new_partitions import NewPartitions

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
    check_topic_name(new.name)
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


def check_total(partitions: int) -> None:
    """Raises BrokerError (POLICY_VIOLATION) for more new partitions than one request may ask for."""
    if partitions > MAX_PARTITIONS_PER_REQUEST:
        raise _too_many_partitions()


def _too_many_partitions() -> BrokerError:
    return BrokerError(ErrorCode.policy_violation, "Excessively large number of partitions per request.")


def check_totals(broker: Broker, topics: Iterable[tuple[int, int]]) -> None:
    """As check_total, for all topics of a request: (number of partitions or DEFAULT, number of assignments) of each
    (ReplicationControlManager.validateTotalNumberOfPartitions)."""
    total = 0
    for partitions, assignments in topics:
        if assignments:
            total += assignments
        elif partitions == DEFAULT:
            total += broker.config.num_partitions
        else:
            total += max(partitions, 0)
    check_total(total)


async def create_topic(broker: Broker, new: NewTopic) -> Topic:
    """Make the topic and its empty logs. Raises BrokerError."""
    check_totals(broker, [(new.partitions, len(new.assignments))])
    (made,) = await create_topics(broker, [new])
    if isinstance(made, BrokerError):
        raise made
    return made


async def create_topics(broker: Broker, wanted: Sequence[NewTopic]) -> list[Outcome]:
    """Make topics and their empty logs, all in one write of the registry: what became of each, in order. Names must
    differ."""
    turn = Turn()
    outcomes: dict[str, Outcome] = {}
    topics, configs = [], {}
    configs_of = LogConfigs(broker)
    for new in wanted:
        if turn.over:
            await turn.next()
        try:
            partitions, configs[new.name] = check_new_topic(broker, new, configs_of)
            overrides = {name: value for name, value in new.configs.items() if value is not None}
            topics.append(Topic(new.name, new_uuid(), partitions, overrides))
        except BrokerError as error:
            outcomes[new.name] = error
    for topic in topics:
        while (leaving := broker.changes.leaving.get(topic.name)) is not None:
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
        await broker.run_blocking(_forget, broker, gone)
        for logs, why in failed:
            outcomes[logs.topic.name] = _as_answer(why, f"topic {logs.topic.name} cannot be created")
    for logs in new_logs:
        if turn.over:
            await turn.next()
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
    async with broker.changes.ensuring:
        return broker.topics.get(name) or await create_topic(broker, NewTopic(name, partitions, 1, configs=configs))


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


async def add_partitions(broker: Broker, totals: Mapping[str, int]) -> list[Outcome]:
    """Enlarge topics to so many partitions, all in one write of the registry: what became of each, in order."""
    before = {name: topic.partitions for name in totals if (topic := broker.topics.get(name)) is not None}
    outcomes = await _in_registry(broker, broker.topics.add_all_partitions, totals)
    configs_of = LogConfigs(broker)
    new_logs = [
        NewLogs(topic, range(before[topic.name], topic.partitions), configs_of(topic.configs))
        for topic in outcomes
        if isinstance(topic, Topic)
    ]
    failed = await _create_logs(broker, new_logs)
    if failed:
        gone = [(logs.topic, logs.partitions.start) for logs, _ in failed if await _take_back(broker, logs)]
        await broker.run_blocking(broker.topics.take_partitions_back, gone)
    errors = {
        logs.topic.name: _as_answer(
            error, f"topic {logs.topic.name} cannot be given {logs.topic.partitions} partitions"
        )
        for logs, error in failed
    }
    for logs in new_logs:
        if logs.topic.name not in errors:
            name, total = logs.topic.name, logs.topic.partitions
            _log.info("topic %s has %d partitions now, it had %d", name, total, logs.partitions.start)
    return [errors.get(outcome.name, outcome) if isinstance(outcome, Topic) else outcome for outcome in outcomes]


async def delete_topics(broker: Broker, names: Sequence[str]) -> list[Outcome]:
    """Forget topics, in one write of the registry, and rename their directories; the files go after
    file.delete.delay.ms. The topic that is gone, or the error, of each name, in order; names must differ."""
    turn, left, leaving = Turn(), asyncio.Event(), broker.changes.leaving
    ours = [name for name in names if leaving.setdefault(name, left) is left]
    try:
        outcomes = await _in_registry(broker, broker.topics.delete_all, names)
        topics = [topic for topic in outcomes if isinstance(topic, Topic)]
        departures = []
        for topic in topics:
            if turn.over:
                await turn.next()
            departures.append(broker.logs.detach_topic(topic))
            if topic.name == TRANSACTION_TOPIC:
                broker.transactions.table.close_all()
            _log.info("topic %s is deleted", topic.name)
        if not topics:
            return outcomes
        departure = together(departures, partial(broker.logs.forget_deleted, topics))
        try:
            await broker.run_blocking(departure.finish)
        except BrokerError as error:
            _log.error("%s", error)
    finally:
        for name in ours:
            del leaving[name]
        left.set()
    for _ in broker.groups.on_topics_deleted({topic.name for topic in topics}):
        if turn.over:
            await turn.next()
    return [departure.failed.get(name, outcome) for name, outcome in zip(names, outcomes, strict=True)]


_C = TypeVar("_C", bound=Collection[Any])


async def _in_registry(broker: Broker, change: Callable[[_C], list[Outcome]], wanted: _C) -> list[Outcome]:
    """Change the registry in a thread. When it cannot be written, that is what became of each."""
    try:
        return await broker.run_blocking(change, wanted)
    except BrokerError as error:
        return [error] * len(wanted)


class NewLogs(NamedTuple):
    """Partitions of a topic whose logs are to be made."""

    topic: Topic
    partitions: range
    config: LogConfig


async def _create_logs(broker: Broker, wanted: Sequence[NewLogs]) -> list[tuple[NewLogs, Exception]]:
    """The directories first, with one fsync for all; then log by log, since others want to be served. What failed is
    returned, and some of its logs may have been made."""
    if not wanted:
        return []
    turn = Turn()
    try:
        places: NewPartitions = await broker.run_blocking(_make_places, broker, wanted)
    except BrokerError as error:  # no log directory is left
        return [(logs, error) for logs in wanted]
    failed: list[tuple[NewLogs, Exception]] = []
    try:
        for logs in wanted:
            try:
                for index in logs.partitions:
                    if turn.over:
                        await turn.next()
                    if broker.topics.by_id(logs.topic.id) is None:
                        break  # deleted in the meantime
                    broker.logs.create(logs.topic.name, index, logs.topic.id, logs.config, places)
            except Exception as error:  # noqa: BLE001 - whatever it is, what was begun has to be taken back
                failed.append((logs, error))
    finally:
        await broker.run_blocking(places.remove_unused)
    return failed


def _make_places(broker: Broker, wanted: Sequence[NewLogs]) -> NewPartitions:
    places = broker.logs.place_all((logs.topic.name, index) for logs in wanted for index in logs.partitions)
    places.make()
    return places


def _as_answer(error: Exception, what: str) -> BrokerError:
    """What a client is told of `error`: UNKNOWN_SERVER_ERROR, and a traceback in the log, for a fault of ours."""
    if isinstance(error, BrokerError):
        return error
    _log.error("%s: %s: %s", what, type(error).__name__, error, exc_info=error)
    return BrokerError(ErrorCode.unknown_server_error, f"{what}: {type(error).__name__}: {error}")


async def _take_back(broker: Broker, logs: NewLogs) -> bool:
    """Delete the logs of partitions that could not all be made. False when there is nothing to take back: the topic was
    deleted meanwhile, or somebody has written to one of them already. Then they stay, and those that are missing are
    offline until the next start."""
    topic, indexes, _ = logs
    if broker.topics.by_id(topic.id) is None:
        return False
    made = [index for name, index in broker.logs.partitions(topic.name) if index in indexes]
    if any(_holds_records(broker, topic.name, index) for index in made):
        broker.logs.miss(topic.name, set(indexes) - set(made))
        return False
    await broker.run_blocking(broker.logs.detach((topic.name, index) for index in made).finish)
    return True


def _holds_records(broker: Broker, topic: str, index: int) -> bool:
    try:
        return broker.log(topic, index).log_end_offset > 0
    except BrokerError:  # offline: nobody can have written to it
        return False


def _forget(broker: Broker, topics: Sequence[Topic]) -> None:
    broker.topics.delete_if_there(topics)
    broker.logs.forget_deleted(topics)  # their logs are gone already


class LogConfigs:
    """The log configurations of a request's topics: most have the same overrides, and then the same object."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._made: dict[tuple[tuple[str, str | None], ...], LogConfig] = {}

    def __call__(self, configs: Mapping[str, str | None]) -> LogConfig:
        """Raises BrokerError (INVALID_CONFIG)."""
        key = tuple(configs.items())
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = self._parse(configs)
        return made

    def _parse(self, configs: Mapping[str, str | None]) -> LogConfig:
        nulls = [name for name, value in configs.items() if value is None]
        if nulls:
            raise BrokerError(
                ErrorCode.invalid_config, f"Null value not supported for topic configs: {','.join(sorted(nulls))}"
            )
        try:
            return LogConfig.of(
                self._broker.config, {name: value for name, value in configs.items() if value is not None}
            )
        except ConfigError as error:
            raise BrokerError(ErrorCode.invalid_config, error.what) from None


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
