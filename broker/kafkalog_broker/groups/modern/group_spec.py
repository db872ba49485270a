"""Input and output of the server-side assignors (Kafka's GroupSpec and GroupAssignment).

All assignors assign partitions in the order of member IDs and topic names, so that the same group gets the same
assignment again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from kafkalog_broker.groups.modern.group_records import Partitions


class AssignedMember(NamedTuple):
    """A member as an assignor sees it. topics: subscribed ones that exist. partitions: its target assignment so far."""

    topics: Collection[UUID]
    partitions: Partitions
    instance_id: str | None = None


class GroupSpec(NamedTuple):
    """members: by id, in order of assignment. homogeneous: all subscribe to the same. partitions: assignable ones."""

    members: Mapping[str, AssignedMember]
    homogeneous: bool
    partitions: Callable[[UUID], Sequence[int]]


Assignments = Mapping[str, Partitions]  # by member id; who is not in it gets nothing
TopicPartition = tuple[UUID, int]


def with_partitions(kept: Partitions, gained: Iterable[TopicPartition]) -> Partitions:
    topics = {topic: list(partitions) for topic, partitions in kept.items()}
    for topic, partition in gained:
        topics.setdefault(topic, []).append(partition)
    return {topic: tuple(sorted(partitions)) for topic, partitions in topics.items()}
