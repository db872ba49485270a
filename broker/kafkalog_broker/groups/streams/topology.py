"""The topology of a streams application, and the topics that it needs (Kafka's StreamsTopology, InternalTopicManager,
RepartitionTopics, CopartitionedTopicsEnforcer, ChangelogTopics).

A subtopology has as many tasks as its sources have partitions. Partition counts follow from the sources: a repartition
topic has as many as the largest source of what writes it, those of a copartition group as many as its sources, and a
changelog as many as its subtopology has tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from heapq import heappop, heappush
from itertools import chain
from typing import Any, NamedTuple

from kafkalog_broker.errors import BrokerError, ErrorCode

PartitionCount = Callable[[str], int | None]  # partitions of a topic; None: there is none of that name
_NAMES_SHOWN = 3


class StatusCode(IntEnum):
    """StreamsGroupHeartbeatResponse.Status."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class Status(NamedTuple):
    code: StatusCode
    detail: str


# ---- values. Their fields are in the order of the record's (StreamsGroupTopologyValue), and written as they are.


class TopicInfo(NamedTuple):
    """An internal topic. partitions: 0: as many as follow from the sources. replication_factor: 0: the broker's."""

    name: str
    partitions: int
    replication_factor: int
    topic_configs: tuple[tuple[str, str], ...]


class CopartitionGroup(NamedTuple):
    """Sources of a subtopology that need equally many partitions: their places among its own."""

    source_topics: tuple[int, ...]
    source_topic_regex: tuple[int, ...]
    repartition_source_topics: tuple[int, ...]


class Subtopology(NamedTuple):
    subtopology_id: str
    source_topics: tuple[str, ...]
    source_topic_regex: tuple[str, ...]
    state_changelog_topics: tuple[TopicInfo, ...]
    repartition_sink_topics: tuple[str, ...]
    repartition_source_topics: tuple[TopicInfo, ...]
    copartition_groups: tuple[CopartitionGroup, ...]

    @property
    def sources(self) -> Iterator[str]:
        return chain(self.source_topics, (topic.name for topic in self.repartition_source_topics))

    @property
    def internal_topics(self) -> Iterator[TopicInfo]:
        return chain(self.repartition_source_topics, self.state_changelog_topics)

    def copartitioned(self) -> Iterator[frozenset[str]]:
        """Names of topics. Raises BrokerError (UNKNOWN_SERVER_ERROR, as in Kafka) for a place where there is none."""
        sources = dict(enumerate(self.source_topics))
        repartitions = {place: topic.name for place, topic in enumerate(self.repartition_source_topics)}
        for group in self.copartition_groups:
            places = ((sources, group.source_topics), (repartitions, group.repartition_source_topics))
            try:
                yield frozenset(names[place] for names, some in places for place in some)
            except KeyError:
                raise BrokerError(ErrorCode.unknown_server_error) from None


@dataclass(frozen=True)
class Topology:
    """subtopologies: in the order of the record."""

    epoch: int
    subtopologies: tuple[Subtopology, ...]

    @cached_property
    def by_id(self) -> Mapping[str, Subtopology]:
        return {each.subtopology_id: each for each in self.subtopologies}

    @cached_property
    def by_source(self) -> Mapping[str, str]:
        """Ids of subtopologies by the names of the topics that they read."""
        return {name: each.subtopology_id for each in self.subtopologies for name in each.sources}

    @cached_property
    def required_topics(self) -> frozenset[str]:
        changelogs = (topic.name for each in self.subtopologies for topic in each.state_changelog_topics)
        return frozenset(chain(self.by_source, changelogs))


def topology_of(epoch: int, subtopologies: Iterable[Any]) -> Topology:
    """Topology of a request or record, subtopologies as tuples. BrokerError STREAMS_INVALID_TOPOLOGY: an id twice."""

    def infos(topics: Iterable[Any]) -> tuple[TopicInfo, ...]:
        return tuple(TopicInfo(*topic) for topic in topics)

    topology = Topology(epoch, tuple(
        Subtopology(name, topics, regexes, infos(changelogs), sinks, infos(repartitions),
                    tuple(CopartitionGroup(*group) for group in groups))
        for name, topics, regexes, changelogs, sinks, repartitions, groups in subtopologies
    ))  # fmt: skip
    if len(topology.by_id) < len(topology.subtopologies):
        raise _invalid("Two subtopologies have the same id.")
    return topology


def _invalid(what: str) -> BrokerError:
    return BrokerError(ErrorCode.streams_invalid_topology, what)


# ---- a topology with the topics that there are


class ConfiguredSubtopology(NamedTuple):
    """tasks: how many it has. Its internal topics have their partition counts."""

    tasks: int
    subtopology: Subtopology


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """subtopologies: by id, in order; empty where the sources do not fit. missing: internal topics that are to be made.
    problem: None where all topics are there and fit."""

    subtopologies: Mapping[str, ConfiguredSubtopology] = field(default_factory=dict)
    missing: Mapping[str, TopicInfo] = field(default_factory=dict)
    problem: Status | None = None

    def check_tasks(self, reported: Mapping[Any, Collection[int]]) -> None:
        """Raises BrokerError (INVALID_REQUEST) for a task that there is not. reported: by TasksKey."""
        for key, partitions in reported.items():
            configured = self.subtopologies.get(key.subtopology_id)
            if configured is None:
                what = f"Subtopology {key.subtopology_id} does not exist in the topology."
                raise BrokerError(ErrorCode.invalid_request, what)
            for partition in partitions:
                if not 0 <= partition < configured.tasks:
                    raise BrokerError(
                        ErrorCode.invalid_request,
                        f"Task {partition} for subtopology {key.subtopology_id} is invalid. Number of tasks for this "
                        f"subtopology: {configured.tasks}",
                    )


class _Unfit(Exception):
    def __init__(self, code: StatusCode, detail: str) -> None:
        self.status = Status(code, detail)


def configured(topology: Topology, partition_count: PartitionCount) -> ConfiguredTopology:
    """Raises BrokerError (STREAMS_INVALID_TOPOLOGY): no topics could make this topology work."""
    try:
        sources = {name for each in topology.subtopologies for name in each.source_topics}
        if absent := sorted(name for name in sources if partition_count(name) is None):
            raise _Unfit(StatusCode.MISSING_SOURCE_TOPICS, f"Source topics {_summary(absent)} are missing.")
        counts = _internal_counts(topology, partition_count)
        subtopologies = {
            name: _configured(topology.by_id[name], counts, _or_decided(partition_count, counts))
            for name in sorted(topology.by_id)
        }
        missing = _missing(subtopologies.values(), partition_count)
    except _Unfit as unfit:
        return ConfiguredTopology(problem=unfit.status)
    problem = None
    if missing:
        detail = f"Internal topics are missing: {_summary(missing)}"
        problem = Status(StatusCode.MISSING_INTERNAL_TOPICS, detail)
    return ConfiguredTopology(subtopologies, missing, problem)


def _summary(names: Collection[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    shown = ", ".join(list(names)[:_NAMES_SHOWN])
    return shown if more <= 0 else f"{shown} and {more} additional topics"


def _or_decided(partition_count: PartitionCount, decided: Mapping[str, int]) -> PartitionCount:
    """Partition counts of topics that there are, and of those that are to be made."""

    def count(name: str) -> int | None:
        present = partition_count(name)
        return decided.get(name) if present is None else present

    return count


def _internal_counts(topology: Topology, partition_count: PartitionCount) -> dict[str, int]:
    decided = _repartition_counts(topology, partition_count)
    count = _or_decided(partition_count, decided)
    infos = {topic.name: topic for each in topology.subtopologies for topic in each.repartition_source_topics}
    fixed = {name: count(name) or 0 for name, topic in infos.items() if topic.partitions}
    fixed_counts = set(fixed.values())  # no copartition group changes them
    for each in topology.subtopologies:
        for group in each.copartitioned():
            decided.update(_copartitioned(group, infos, fixed_counts, count))
    for each in topology.subtopologies:
        counts = [count(name) or 0 for name in each.sources]
        if not counts:
            raise _invalid(f"No source topics found for subtopology {each.subtopology_id}")
        decided.update((topic.name, max(counts)) for topic in each.state_changelog_topics)
    return decided


def _repartition_counts(topology: Topology, partition_count: PartitionCount) -> dict[str, int]:
    """Partition counts that the topology fixes, and those that follow from the sources of what writes a topic."""
    counts = {
        topic.name: topic.partitions
        for each in topology.subtopologies
        for topic in each.repartition_source_topics
        if topic.partitions
    }
    readers: dict[str, list[int]] = {}  # places of the subtopologies that read a repartition topic
    for place, each in enumerate(topology.subtopologies):
        for topic in each.repartition_source_topics:
            readers.setdefault(topic.name, []).append(place)
    # Kafka goes through all subtopologies again and again, and decides one as soon as the count of a source is known.
    # The heap, which begins as a sorted list, visits each subtopology once, in that order of rounds and places.
    due = [
        (0, place)
        for place, each in enumerate(topology.subtopologies)
        if any(topic.name in counts for topic in each.repartition_source_topics)
        or any(partition_count(name) is not None for name in each.source_topics)
    ]
    seen = {place for _, place in due}
    while due:
        turn, place = heappop(due)
        each = topology.subtopologies[place]
        known = [counts.get(topic.name) for topic in each.repartition_source_topics]
        known += map(partition_count, each.source_topics)
        largest = max(number for number in known if number is not None)
        for sink in each.repartition_sink_topics:
            if sink in counts:
                continue
            counts[sink] = largest
            for reader in readers.get(sink, ()):
                if reader not in seen:
                    seen.add(reader)
                    heappush(due, (turn + (reader < place), reader))
    if any(sink not in counts for each in topology.subtopologies for sink in each.repartition_sink_topics):
        raise _invalid(
            "Failed to compute number of partitions for all repartition topics. There may be loops in the topology "
            "that cannot be resolved."
        )
    for each in topology.subtopologies:
        if any(topic.name not in counts for topic in each.repartition_source_topics):
            raise _invalid(
                "Failed to compute number of partitions for all repartition topics, because a repartition source topic "
                "is never used as a sink topic."
            )
    return counts


def _copartitioned(
    names: Collection[str], infos: Mapping[str, TopicInfo], fixed: Collection[int], partition_count: PartitionCount
) -> dict[str, int]:
    """Partition counts of the repartition topics of a copartition group. fixed: those that the topology fixes."""
    counts = {name: partition_count(name) or 0 for name in names}
    repartition = {name: count for name, count in counts.items() if name in infos}
    others = {name: count for name, count in counts.items() if name not in infos}
    if others:
        common = _the_same(others.values(), others)
    elif fixed:
        # Kafka compares all fixed repartition topics of the topology here, those of other groups too.
        common = _the_same(fixed, repartition)
    else:
        common = max(repartition.values(), default=0)
    for name in sorted(repartition):
        if infos[name].partitions and repartition[name] != common:
            raise _Unfit(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{repartition[name]}] of repartition topic [{name}] doesn't match number of "
                f"partitions [{common}] of the source topic.",
            )
    return dict.fromkeys(repartition, common)


def _the_same(counts: Collection[int], shown: Mapping[str, int]) -> int:
    if len(set(counts)) > 1:
        listed = ", ".join(f"{name}={shown[name]}" for name in sorted(shown))
        raise _Unfit(
            StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{listed}}}]",
        )
    return next(iter(counts))


def _configured(each: Subtopology, counts: Mapping[str, int], partition_count: PartitionCount) -> ConfiguredSubtopology:
    def with_counts(topics: Iterable[TopicInfo]) -> tuple[TopicInfo, ...]:
        return tuple(topic._replace(partitions=topic.partitions or counts[topic.name]) for topic in topics)

    internal = with_counts(each.state_changelog_topics), with_counts(each.repartition_source_topics)
    for topic in chain(*internal):
        if topic.partitions < 1:
            raise _invalid(f"Topic {topic.name} cannot have {topic.partitions} partitions.")
    tasks = max(partition_count(name) or 0 for name in each.sources)
    return ConfiguredSubtopology(
        tasks, each._replace(state_changelog_topics=internal[0], repartition_source_topics=internal[1])
    )


def _missing(subtopologies: Iterable[ConfiguredSubtopology], partition_count: PartitionCount) -> dict[str, TopicInfo]:
    missing = {}
    for topic in (topic for each in subtopologies for topic in each.subtopology.internal_topics):
        count = partition_count(topic.name)
        if count is None:
            missing[topic.name] = topic
        elif count != topic.partitions:
            raise _Unfit(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {topic.name} has different number of partitions: expected {topic.partitions}, found "
                f"{count}",
            )
    return missing
