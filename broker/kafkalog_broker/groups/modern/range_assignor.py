"""The assignor `range` of consumer groups: each member gets a range of the partitions of each topic (RangeAssignor).

Members get the ranges of all topics in the same order, so topics with equally many partitions and the same subscribers
are divided alike (co-partitioning).
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from kafkalog_broker.groups.modern.group_records import Partitions
from kafkalog_broker.groups.modern.group_spec import Assignments, GroupSpec


def assign_ranges(group: GroupSpec) -> Assignments:
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
                topics[topic] = _Topic(len(group.partitions(topic)))
            topics[topic].members += 1
    assigned: dict[str, Partitions] = {}
    for member in order:
        taken = {topic: topics[topic].take() for topic in group.members[member].topics}
        assigned[member] = {topic: tuple(indexes) for topic, indexes in taken.items() if indexes}
    return assigned


@dataclass(slots=True)
class _Topic:
    """Partitions of a topic that are left to be assigned."""

    partitions: int
    members: int = 0
    next: int = 0
    extra: int = -1  # how many members still get one more than the others; -1: nobody has got any

    def take(self) -> range:
        if self.extra < 0:
            self.extra = self.partitions % self.members
        quota = self.partitions // self.members
        if self.extra > 0:
            quota += 1
            self.extra -= 1
        start, self.next = self.next, min(self.next + quota, self.partitions)
        return range(start, self.next)
