"""A topology with its tasks and partition counts, which depend on the topics that exist.

A subtopology has as many tasks as its sources have partitions. A repartition topic has as many partitions as the
largest source of the subtopology that writes it; the topics of a copartition group have equally many; a changelog has
one partition for each task (Kafka's InternalTopicManager, RepartitionTopics, CopartitionedTopicsEnforcer and
ChangelogTopics).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain
from typing import Any, NamedTuple

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.streams.streams_group_status import Status, StatusCode
from kafkalog_broker.groups.streams.topology import Subtopology, TopicInfo, Topology, invalid_topology

PartitionCount = Callable[[str], int | None]  # number of partitions of a topic, or None if it does not exist
_NAMES_SHOWN = 3


class ConfiguredSubtopology(NamedTuple):
    """A subtopology whose internal topics have partition counts, with its number of tasks."""

    tasks: int
    subtopology: Subtopology


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """A topology with its tasks and partition counts.

    Attributes:
        subtopologies: By ID, in order. Empty if source topics are missing, or partition counts do not fit.
        missing: Internal topics that have to be created.
        problem: Why the topology cannot run yet; None if all topics exist and their partition counts fit.
    """

    subtopologies: Mapping[str, ConfiguredSubtopology] = field(default_factory=dict)
    missing: Mapping[str, TopicInfo] = field(default_factory=dict)
    problem: Status | None = None

    def check_tasks(self, reported: Mapping[Any, Collection[int]]) -> None:
        """Check the tasks that a member reports to own, by TasksKey.

        Raises:
            BrokerError: invalid_request for a task that does not exist.
        """
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


class _TopicsDoNotFit(Exception):
    """Source topics are missing, or partition counts do not fit."""

    def __init__(self, code: StatusCode, detail: str) -> None:
        self.status = Status(code, detail)


def configure_topology(topology: Topology, partition_count: PartitionCount) -> ConfiguredTopology:
    """Configure a topology.

    Raises:
        BrokerError: streams_invalid_topology if the topology itself is invalid, whichever topics exist.
    """
    try:
        sources = {name for subtopology in topology.subtopologies for name in subtopology.source_topics}
        if absent := sorted(name for name in sources if partition_count(name) is None):
            raise _TopicsDoNotFit(StatusCode.MISSING_SOURCE_TOPICS, f"Source topics {_summary(absent)} are missing.")
        counts = _internal_counts(topology, partition_count)
        subtopologies = {
            name: _configured_subtopology(topology.by_id[name], counts, _with_decided_counts(partition_count, counts))
            for name in sorted(topology.by_id)
        }
        missing = _missing_topics(subtopologies.values(), partition_count)
    except _TopicsDoNotFit as error:
        return ConfiguredTopology(problem=error.status)
    problem = None
    if missing:
        detail = f"Internal topics are missing: {_summary(missing)}"
        problem = Status(StatusCode.MISSING_INTERNAL_TOPICS, detail)
    return ConfiguredTopology(subtopologies, missing, problem)


def _summary(names: Collection[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    shown = ", ".join(list(names)[:_NAMES_SHOWN])
    return shown if more <= 0 else f"{shown} and {more} additional topics"


def _with_decided_counts(partition_count: PartitionCount, decided: Mapping[str, int]) -> PartitionCount:
    """Return a function that returns the partition counts of existing topics, and `decided` ones of absent topics."""

    def count(name: str) -> int | None:
        present = partition_count(name)
        return decided.get(name) if present is None else present

    return count


def _internal_counts(topology: Topology, partition_count: PartitionCount) -> dict[str, int]:
    """Return the partition counts of all internal topics."""
    decided = _repartition_counts(topology, partition_count)
    count = _with_decided_counts(partition_count, decided)
    repartition_topics = {
        topic.name: topic for subtopology in topology.subtopologies for topic in subtopology.repartition_source_topics
    }
    fixed = {name: count(name) or 0 for name, topic in repartition_topics.items() if topic.partitions}
    fixed_counts = set(fixed.values())  # copartition groups do not change them
    for subtopology in topology.subtopologies:
        for group in subtopology.copartitioned():
            decided.update(_copartitioned(group, repartition_topics, fixed_counts, count))
    for subtopology in topology.subtopologies:
        counts = [count(name) or 0 for name in subtopology.sources]
        if not counts:
            raise invalid_topology(f"No source topics found for subtopology {subtopology.subtopology_id}")
        decided.update((topic.name, max(counts)) for topic in subtopology.state_changelog_topics)
    return decided


def _repartition_counts(topology: Topology, partition_count: PartitionCount) -> dict[str, int]:
    """Return the partition counts of repartition topics, which the topology fixes or the sources of the writer determine."""
    counts = {
        topic.name: topic.partitions
        for subtopology in topology.subtopologies
        for topic in subtopology.repartition_source_topics
        if topic.partitions
    }
    readers: dict[str, list[int]] = {}  # indexes of the subtopologies that read a repartition topic
    for index, subtopology in enumerate(topology.subtopologies):
        for topic in subtopology.repartition_source_topics:
            readers.setdefault(topic.name, []).append(index)
    # Kafka iterates over all subtopologies in rounds, and handles a subtopology as soon as the count of a source is
    # known. This heap visits each subtopology once, in the same order of rounds and indexes.
    due = [
        (0, index)
        for index, subtopology in enumerate(topology.subtopologies)
        if any(topic.name in counts for topic in subtopology.repartition_source_topics)
        or any(partition_count(name) is not None for name in subtopology.source_topics)
    ]
    seen = {index for _, index in due}
    while due:
        round_number, index = heappop(due)
        subtopology = topology.subtopologies[index]
        known = [counts.get(topic.name) for topic in subtopology.repartition_source_topics]
        known += map(partition_count, subtopology.source_topics)
        largest = max(number for number in known if number is not None)
        for sink in subtopology.repartition_sink_topics:
            if sink in counts:
                continue
            counts[sink] = largest
            for reader in readers.get(sink, ()):
                if reader not in seen:
                    seen.add(reader)
                    heappush(due, (round_number + (reader < index), reader))
    if any(
        sink not in counts for subtopology in topology.subtopologies for sink in subtopology.repartition_sink_topics
    ):
        raise invalid_topology(
            "Failed to compute number of partitions for all repartition topics. There may be loops in the topology "
            "that cannot be resolved."
        )
    for subtopology in topology.subtopologies:
        if any(topic.name not in counts for topic in subtopology.repartition_source_topics):
            raise invalid_topology(
                "Failed to compute number of partitions for all repartition topics, because a repartition source topic "
                "is never used as a sink topic."
            )
    return counts


def _copartitioned(
    names: Collection[str],
    repartition_topics: Mapping[str, TopicInfo],
    fixed: Collection[int],
    partition_count: PartitionCount,
) -> dict[str, int]:
    """Return the partition counts of the repartition topics of a copartition group.

    Args:
        repartition_topics: Repartition topics by name.
        fixed: Partition counts that the topology fixes.
    """
    counts = {name: partition_count(name) or 0 for name in names}
    repartition = {name: count for name, count in counts.items() if name in repartition_topics}
    others = {name: count for name, count in counts.items() if name not in repartition_topics}
    if others:
        common = _common_count(others.values(), others)
    elif fixed:
        # Kafka compares the fixed repartition topics of the whole topology here, including those of other groups.
        common = _common_count(fixed, repartition)
    else:
        common = max(repartition.values(), default=0)
    for name in sorted(repartition):
        if repartition_topics[name].partitions and repartition[name] != common:
            raise _TopicsDoNotFit(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{repartition[name]}] of repartition topic [{name}] doesn't match number of "
                f"partitions [{common}] of the source topic.",
            )
    return dict.fromkeys(repartition, common)


def _common_count(counts: Collection[int], shown: Mapping[str, int]) -> int:
    """Return the common count. If the counts differ, the error lists the topics and counts in `shown`."""
    if len(set(counts)) > 1:
        listed = ", ".join(f"{name}={shown[name]}" for name in sorted(shown))
        raise _TopicsDoNotFit(
            StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{listed}}}]",
        )
    return next(iter(counts))


def _configured_subtopology(
    subtopology: Subtopology, counts: Mapping[str, int], partition_count: PartitionCount
) -> ConfiguredSubtopology:
    def with_counts(topics: Iterable[TopicInfo]) -> tuple[TopicInfo, ...]:
        return tuple(topic._replace(partitions=topic.partitions or counts[topic.name]) for topic in topics)

    internal = with_counts(subtopology.state_changelog_topics), with_counts(subtopology.repartition_source_topics)
    for topic in chain(*internal):
        if topic.partitions < 1:
            raise invalid_topology(f"Topic {topic.name} cannot have {topic.partitions} partitions.")
    tasks = max(partition_count(name) or 0 for name in subtopology.sources)
    return ConfiguredSubtopology(
        tasks, subtopology._replace(state_changelog_topics=internal[0], repartition_source_topics=internal[1])
    )


def _missing_topics(
    subtopologies: Iterable[ConfiguredSubtopology], partition_count: PartitionCount
) -> dict[str, TopicInfo]:
    missing = {}
    for topic in (topic for configured in subtopologies for topic in configured.subtopology.internal_topics):
        count = partition_count(topic.name)
        if count is None:
            missing[topic.name] = topic
        elif count != topic.partitions:
            raise _TopicsDoNotFit(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {topic.name} has different number of partitions: expected {topic.partitions}, found "
                f"{count}",
            )
    return missing
