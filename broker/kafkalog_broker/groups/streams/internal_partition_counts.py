"""Partition counts of the internal topics of a topology (Kafka's RepartitionTopics, CopartitionedTopicsEnforcer and
ChangelogTopics).

A repartition topic has as many partitions as the largest source of the subtopology that writes it. All topics of a
copartition group have the same number. A changelog has one partition for each task.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from heapq import heappop, heappush

from kafkalog_broker.groups.streams.streams_group_status import Status, StatusCode
from kafkalog_broker.groups.streams.topology import TopicInfo, Topology, invalid_topology

PartitionCountLookup = Callable[[str], int | None]  # number of partitions of a topic, or None if it does not exist


class TopicsDoNotFit(Exception):
    """The topology cannot run with the existing topics, for the reason in `status`."""

    def __init__(self, code: StatusCode, detail: str) -> None:
        self.status = Status(code, detail)


def internal_partition_counts(topology: Topology, partition_count: PartitionCountLookup) -> dict[str, int]:
    """Return the partition counts of all internal topics, by name.

    Raises:
        TopicsDoNotFit: If the counts of a copartition group cannot be equal.
        BrokerError: streams_invalid_topology.
    """
    counts = _repartition_counts(topology, partition_count)
    count_of = with_internal_counts(partition_count, counts)  # takes later changes of `counts` into account
    repartition_topics = {
        topic.name: topic for subtopology in topology.subtopologies for topic in subtopology.repartition_source_topics
    }
    # copartition groups do not change the counts that the topology fixes
    fixed_counts = {count_of(name) or 0 for name, topic in repartition_topics.items() if topic.partitions}
    for subtopology in topology.subtopologies:
        for group in subtopology.copartitioned():
            counts.update(_copartitioned_counts(group, repartition_topics, fixed_counts, count_of))
    for subtopology in topology.subtopologies:
        source_counts = [count_of(name) or 0 for name in subtopology.sources]
        if not source_counts:
            raise invalid_topology(f"No source topics found for subtopology {subtopology.subtopology_id}")
        counts.update((topic.name, max(source_counts)) for topic in subtopology.state_changelog_topics)
    return counts


def _repartition_counts(topology: Topology, partition_count: PartitionCountLookup) -> dict[str, int]:
    """Return the partition counts of repartition topics: fixed by the topology, or equal to the largest source."""
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
    # Kafka iterates over all subtopologies in rounds, and handles a subtopology as soon as the count of one source is
    # known. This heap visits each subtopology once, in the same order of rounds and indexes.
    pending = [
        (0, index)
        for index, subtopology in enumerate(topology.subtopologies)
        if any(topic.name in counts for topic in subtopology.repartition_source_topics)
        or any(partition_count(name) is not None for name in subtopology.source_topics)
    ]
    seen = {index for _, index in pending}
    while pending:
        round_number, index = heappop(pending)
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
                    heappush(pending, (round_number + (reader < index), reader))
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


def _copartitioned_counts(
    names: Collection[str],
    repartition_topics: Mapping[str, TopicInfo],
    fixed_counts: Collection[int],
    partition_count: PartitionCountLookup,
) -> dict[str, int]:
    """Return the partition counts of the repartition topics of a copartition group.

    Args:
        repartition_topics: Repartition topics by name.
        fixed_counts: Partition counts that the topology fixes.
    """
    counts = {name: partition_count(name) or 0 for name in names}
    repartition = {name: count for name, count in counts.items() if name in repartition_topics}
    others = {name: count for name, count in counts.items() if name not in repartition_topics}
    if others:
        common = _common_count(others.values(), others)
    elif fixed_counts:
        # Kafka compares the fixed repartition topics of the whole topology here, including those of other groups.
        common = _common_count(fixed_counts, repartition)
    else:
        common = max(repartition.values(), default=0)
    for name in sorted(repartition):
        if repartition_topics[name].partitions and repartition[name] != common:
            raise TopicsDoNotFit(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{repartition[name]}] of repartition topic [{name}] doesn't match number of "
                f"partitions [{common}] of the source topic.",
            )
    return dict.fromkeys(repartition, common)


def _common_count(counts: Collection[int], shown: Mapping[str, int]) -> int:
    """Return the common count. If the counts differ, the error lists the topics and counts in `shown`."""
    if len(set(counts)) > 1:
        listed = ", ".join(f"{name}={shown[name]}" for name in sorted(shown))
        raise TopicsDoNotFit(
            StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{listed}}}]",
        )
    return next(iter(counts))


def with_internal_counts(partition_count: PartitionCountLookup, counts: Mapping[str, int]) -> PartitionCountLookup:
    """Return a function that returns the partition count of an existing topic, or the one in `counts`."""

    def count_of(name: str) -> int | None:
        existing = partition_count(name)
        return counts.get(name) if existing is None else existing

    return count_of
