"""The assignor `range`: of each topic, every member gets a range of partitions (Kafka's RangeAssignor).

Members in the same order get the ranges of all topics, so topics with the same number of partitions and the same
subscribers are divided alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from kafkalog_broker.groups.modern.assignor_input import Assignments, GroupSpec

NAME = "range"


@dataclass(slots=True)
class _Topic:
    """What of a topic is left to be given out."""

    partitions: int
    members: int = 0
    next: int = 0
    extra: int = -1
    """How many members still get one more than the others; -1: nobody has got any."""

    def take(self) -> range:
        if self.extra < 0:
            self.extra = self.partitions % self.members
        quota = self.partitions // self.members
        if self.extra > 0:
            quota += 1
            self.extra -= 1
        start, self.next = self.next, min(self.next + quota, self.partitions)
        return range(start, self.next)


def assign(group: GroupSpec) -> Assignments:
    """Static members first, by instance id, then the others by member id."""
    order = sorted(
        group.members,
        key=lambda member: (
            (0, group.members[member].instance_id or "") if group.members[member].instance_id else (1, member)
        ),
    )
    topics: dict[UUID, _Topic] = {}
    for member in order:
        for topic in group.members[member].topics:
            if topic not in topics:
                topics[topic] = _Topic(group.partition_count(topic))
            topics[topic].members += 1
    assigned: Assignments = {}
    for member in order:
        taken = {topic: topics[topic].take() for topic in group.members[member].topics}
        assigned[member] = {topic: tuple(part) for topic, part in taken.items() if part}
    return assigned
