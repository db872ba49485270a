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
    """A member as an assignor sees it.

    Attributes:
        topics: IDs of the topics that it subscribes to and that exist.
        partitions: Its current target assignment.
    """

    topics: Collection[UUID]
    partitions: Partitions
    instance_id: str | None = None


class GroupSpec(NamedTuple):
    """A group as an assignor sees it.

    Attributes:
        members: By member ID, in the order in which they are assigned.
        is_homogeneous: Whether all members have the same subscription.
        partitions_of: Returns the partitions of a topic that can be assigned.
    """

    members: Mapping[str, AssignedMember]
    is_homogeneous: bool
    partitions_of: Callable[[UUID], Sequence[int]]


Assignments = Mapping[str, Partitions]
"""Target assignments by member ID; a member without an entry gets no partitions."""
TopicPartition = tuple[UUID, int]
"""Topic ID and partition. A plain tuple, because assignors make one for each partition of a large group."""


def with_partitions(kept: Partitions, gained: Iterable[TopicPartition]) -> Partitions:
    """Return an assignment with additional partitions."""
    topics = {topic: list(partitions) for topic, partitions in kept.items()}
    for topic, partition in gained:
        topics.setdefault(topic, []).append(partition)
    return {topic: tuple(sorted(partitions)) for topic, partitions in topics.items()}
