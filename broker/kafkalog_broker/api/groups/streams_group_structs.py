"""Topologies and tasks of streams groups, read from requests and written to responses."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_records import Owned, Partitions, TaskRole, tasks_by_role
from kafkalog_broker.groups.streams.topology import Subtopology, TopicInfo, Topology, build_topology

TASK_FIELDS: Mapping[TaskRole, str] = dict(
    zip(TaskRole, ("active_tasks", "standby_tasks", "warmup_tasks"), strict=True)
)
"""Fields of requests and responses that have the tasks of each role."""

MAX_TOPOLOGY_ELEMENTS = 5_000
"""Most elements of all arrays in a topology. A topology is checked, hashed and written in one step of the event loop.
Applications of Kafka Streams have some hundred elements."""


def topology_of_request(topology: Any) -> Topology:
    """Return the topology that a heartbeat states.

    Raises:
        BrokerError: INVALID_REQUEST for more than MAX_TOPOLOGY_ELEMENTS, STREAMS_INVALID_TOPOLOGY.
    """
    elements = _count_elements(topology)
    if elements > MAX_TOPOLOGY_ELEMENTS:
        message = f"The topology has {elements} parts, at most {MAX_TOPOLOGY_ELEMENTS} are allowed."
        raise BrokerError(ErrorCode.invalid_request, message)

    def topic_infos(topics: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        for topic in topics:
            configs = tuple((config.key, config.value) for config in topic.topic_configs)
            yield topic.name, topic.partitions, topic.replication_factor, configs

    return build_topology(topology.epoch, (
        (subtopology.subtopology_id, subtopology.source_topics, subtopology.source_topic_regex,
         topic_infos(subtopology.state_changelog_topics), subtopology.repartition_sink_topics,
         topic_infos(subtopology.repartition_source_topics),
         ((group.source_topics, group.source_topic_regex, group.repartition_source_topics)
          for group in subtopology.copartition_groups))
        for subtopology in topology.subtopologies
    ))  # fmt: skip


def topic_names(subtopologies: Collection[Subtopology]) -> list[str]:
    """Return the names of all topics that subtopologies read and write, each once."""
    names: dict[str, None] = {}  # an ordered set
    for subtopology in subtopologies:
        names.update(dict.fromkeys(subtopology.source_topics))
        names.update(dict.fromkeys(subtopology.repartition_sink_topics))
        names.update(dict.fromkeys(topic.name for topic in subtopology.internal_topics))
    return list(names)


def subtopology_fields(subtopology_id: str, subtopology: Subtopology) -> dict[str, Any]:
    """Return the fields of a subtopology in a group's description."""

    def topic_fields(topics: Collection[TopicInfo]) -> list[dict[str, Any]]:
        return [
            {**topic._asdict(), "topic_configs": [{"key": key, "value": value} for key, value in topic.topic_configs]}
            for topic in sorted(topics)
        ]

    return {
        "subtopology_id": subtopology_id, "source_topics": sorted(subtopology.source_topics),
        "repartition_sink_topics": sorted(subtopology.repartition_sink_topics),
        "state_changelog_topics": topic_fields(subtopology.state_changelog_topics),
        "repartition_source_topics": topic_fields(subtopology.repartition_source_topics),
    }  # fmt: skip


def task_fields(assigned: Partitions | Owned) -> dict[str, list[dict[str, Any]]]:
    """Return the arrays of tasks of an assignment, one for each role."""
    return {
        field: [{"subtopology_id": subtopology_id, "partitions": tuple(indexes)} for subtopology_id, indexes in tasks]
        for field, tasks in zip(TASK_FIELDS.values(), tasks_by_role(assigned), strict=True)
    }


def _count_elements(topology: Any) -> int:
    """Return the number of elements in all arrays of a topology."""
    count = len(topology.subtopologies)
    for subtopology in topology.subtopologies:
        count += (
            len(subtopology.source_topics)
            + len(subtopology.source_topic_regex)
            + len(subtopology.repartition_sink_topics)
        )
        for topics in (subtopology.state_changelog_topics, subtopology.repartition_source_topics):
            count += len(topics) + sum(len(topic.topic_configs) for topic in topics)
        for group in subtopology.copartition_groups:
            count += 1 + len(group.source_topics) + len(group.source_topic_regex) + len(group.repartition_source_topics)
    return count
