"""A topology with its tasks and partition counts, which depend on the topics that exist.

A subtopology has as many tasks as its largest source has partitions (Kafka's InternalTopicManager).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.streams.internal_partition_counts import (
    PartitionCountLookup,
    TopicsDoNotFit,
    internal_partition_counts,
    with_internal_counts,
)
from kafkalog_broker.groups.streams.streams_group_status import Status, StatusCode
from kafkalog_broker.groups.streams.topology import Subtopology, TopicInfo, Topology, invalid_topology

_NAMES_SHOWN = 3


class ConfiguredSubtopology(NamedTuple):
    """A subtopology with the partition counts of its internal topics, and its number of tasks."""

    tasks: int
    subtopology: Subtopology


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """A topology with its tasks and partition counts.

    Attributes:
        subtopologies: By ID, in order. Empty if source topics are missing, or partition counts do not fit.
        missing_topics: Internal topics that have to be created.
        problem: Why the topology cannot run yet; None if all topics exist and their partition counts fit.
    """

    subtopologies: Mapping[str, ConfiguredSubtopology] = field(default_factory=dict)
    missing_topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    problem: Status | None = None

    def check_tasks(self, reported: Mapping[Any, Collection[int]]) -> None:
        """Check the tasks that a member reports to own, by TasksKey.

        Raises:
            BrokerError: invalid_request for a task that does not exist.
        """
        for key, partitions in reported.items():
            configured = self.subtopologies.get(key.subtopology_id)
            if configured is None:
                message = f"Subtopology {key.subtopology_id} does not exist in the topology."
                raise BrokerError(ErrorCode.invalid_request, message)
            for partition in partitions:
                if not 0 <= partition < configured.tasks:
                    raise BrokerError(
                        ErrorCode.invalid_request,
                        f"Task {partition} for subtopology {key.subtopology_id} is invalid. Number of tasks for this "
                        f"subtopology: {configured.tasks}",
                    )


def configure_topology(topology: Topology, partition_count: PartitionCountLookup) -> ConfiguredTopology:
    """Configure a topology.

    Raises:
        BrokerError: streams_invalid_topology if the topology itself is invalid, whichever topics exist.
    """
    try:
        sources = {name for subtopology in topology.subtopologies for name in subtopology.source_topics}
        if absent := sorted(name for name in sources if partition_count(name) is None):
            raise TopicsDoNotFit(StatusCode.MISSING_SOURCE_TOPICS, f"Source topics {_summary(absent)} are missing.")
        counts = internal_partition_counts(topology, partition_count)
        count = with_internal_counts(partition_count, counts)
        subtopologies = {
            name: _configured_subtopology(topology.by_id[name], counts, count) for name in sorted(topology.by_id)
        }
        missing = _missing_topics(subtopologies.values(), partition_count)
    except TopicsDoNotFit as error:
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


def _configured_subtopology(
    subtopology: Subtopology, counts: Mapping[str, int], partition_count: PartitionCountLookup
) -> ConfiguredSubtopology:
    def with_counts(topics: Iterable[TopicInfo]) -> tuple[TopicInfo, ...]:
        return tuple(topic._replace(partitions=topic.partitions or counts[topic.name]) for topic in topics)

    changelogs = with_counts(subtopology.state_changelog_topics)
    repartition_sources = with_counts(subtopology.repartition_source_topics)
    for topic in chain(changelogs, repartition_sources):
        if topic.partitions < 1:
            raise invalid_topology(f"Topic {topic.name} cannot have {topic.partitions} partitions.")
    tasks = max(partition_count(name) or 0 for name in subtopology.sources)
    return ConfiguredSubtopology(
        tasks,
        subtopology._replace(state_changelog_topics=changelogs, repartition_source_topics=repartition_sources),
    )


def _missing_topics(
    subtopologies: Iterable[ConfiguredSubtopology], partition_count: PartitionCountLookup
) -> dict[str, TopicInfo]:
    """Return absent internal topics by name. Raises TopicsDoNotFit if an existing one has another partition count."""
    missing = {}
    internal_topics = chain.from_iterable(configured.subtopology.internal_topics for configured in subtopologies)
    for topic in internal_topics:
        count = partition_count(topic.name)
        if count is None:
            missing[topic.name] = topic
        elif count != topic.partitions:
            raise TopicsDoNotFit(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {topic.name} has different number of partitions: expected {topic.partitions}, found "
                f"{count}",
            )
    return missing
