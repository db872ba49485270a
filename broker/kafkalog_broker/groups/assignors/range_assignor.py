"""The assignor `range` of consumer groups: each member gets a range of the partitions of each topic (RangeAssignor).

Members get the ranges of all topics in the same order, so topics with equally many partitions and the same subscribers
are divided alike (co-partitioning).
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from kafkalog_broker.groups.assignors.group_spec import Assignments, GroupSpec
from kafkalog_broker.groups.modern.group_records import Partitions


def assign_ranges(group: GroupSpec) -> Assignments:
    """Assign ranges to static members in the order of instance IDs, then to the others in the order of member IDs."""
    member_ids = sorted(group.members, key=lambda member_id: _order(member_id, group.members[member_id].instance_id))
    topics: dict[UUID, _RangesOfTopic] = {}
    for member_id in member_ids:
        for topic_id in group.members[member_id].topics:
            if topic_id not in topics:
                topics[topic_id] = _RangesOfTopic(len(group.partitions_of(topic_id)))
            topics[topic_id].members += 1
    assignments: dict[str, Partitions] = {}
    for member_id in member_ids:
        ranges = {topic_id: topics[topic_id].next_range() for topic_id in group.members[member_id].topics}
        assignments[member_id] = {topic_id: tuple(indexes) for topic_id, indexes in ranges.items() if indexes}
    return assignments


def _order(member_id: str, instance_id: str | None) -> tuple[int, str]:
    return (0, instance_id) if instance_id else (1, member_id)


@dataclass(slots=True)
class _RangesOfTopic:
    """Divides the partitions of a topic between its subscribers."""

    partitions: int
    members: int = 0
    start: int = 0  # first partition of the next range
    larger_ranges: int | None = None  # number of remaining ranges with one partition more; None before the first range

    def next_range(self) -> range:
        if self.larger_ranges is None:
            self.larger_ranges = self.partitions % self.members
        size = self.partitions // self.members
        if self.larger_ranges > 0:
            size += 1
            self.larger_ranges -= 1
        start = self.start
        self.start = min(self.start + size, self.partitions)
        return range(start, self.start)
