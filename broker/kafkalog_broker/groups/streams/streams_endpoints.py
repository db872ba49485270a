"""Endpoints of the members of a streams group, with the partitions of their tasks (PartitionsByUserEndpoint)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kafkalog_broker.groups.modern.group_context import GroupContext
from kafkalog_broker.groups.modern.group_records import Endpoint, Owned, TaskRole
from kafkalog_broker.groups.streams.configured_topology import ConfiguredSubtopology
from kafkalog_broker.groups.streams.streams_group import StreamsGroup, StreamsMember

MAX_ENDPOINT_TOPICS = 10_000
"""Largest number of topics that a response names for all endpoints. A response with more topics has no endpoints,
because listing them with every heartbeat would block the event loop for too long."""


def endpoints(context: GroupContext, group: StreamsGroup, updated: StreamsMember) -> list[Mapping[str, Any]] | None:
    """Return the endpoints of all members in the order of the response, the updated member last.

    Returns:
        None if they name more than `MAX_ENDPOINT_TOPICS`.
    """
    subtopologies = {} if group.configured is None else group.configured.subtopologies
    if endpoint_topics(group) > MAX_ENDPOINT_TOPICS:
        return None
    sources = {name for configured in subtopologies.values() for name in configured.subtopology.sources}
    partition_counts = {name: context.partition_count(name) or 0 for name in sources}
    members = [member for member_id, member in group.members.items() if member_id != updated.member_id]
    return [
        {
            "user_endpoint": host_and_port(member.user_endpoint),
            "active_partitions": list(_partitions(subtopologies, member.assigned, TaskRole.ACTIVE, partition_counts)),
            "standby_partitions": list(_partitions(subtopologies, member.assigned, TaskRole.STANDBY, partition_counts)),
        }
        for member in (*members, updated)
        if member.user_endpoint is not None
    ]


def endpoint_topics(group: StreamsGroup) -> int:
    """Return the number of topics that all endpoints name: the sources of the subtopologies of each member's tasks."""
    subtopologies = {} if group.configured is None else group.configured.subtopologies
    sources = {name: sum(1 for _ in configured.subtopology.sources) for name, configured in subtopologies.items()}
    members = (member for member in group.members.values() if member.user_endpoint is not None)
    return sum(sources.get(key.subtopology_id, 0) for member in members for key in member.assigned)


def host_and_port(endpoint: Endpoint | None) -> dict[str, Any] | None:
    return None if endpoint is None else {"host": endpoint.host, "port": endpoint.port}


def _partitions(
    subtopologies: Mapping[str, ConfiguredSubtopology], assigned: Owned, role: TaskRole, counts: Mapping[str, int]
) -> Iterator[dict[str, Any]]:
    """Yield the partitions that tasks read: the first ones if a topic has fewer partitions than tasks, as in Kafka."""
    for key, partitions in assigned.items():
        if key.role is role and key.subtopology_id in subtopologies:
            for topic in subtopologies[key.subtopology_id].subtopology.sources:
                yield {"topic": topic, "partitions": tuple(sorted(partitions)[: counts.get(topic, 0)])}
