"""What an assignor is asked, and what all of them know (GroupSpec, SubscribedTopicDescriber)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from kafkalog_broker.groups.modern.values import Partitions


class AssignedMember(NamedTuple):
    """One member as an assignor sees it. topics: those that exist of what it subscribes to. partitions: its target
    assignment up to now."""

    topics: Collection[UUID]
    partitions: Partitions
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """members: by id, in the order in which partitions are given out. homogeneous: all subscribe to the same.
    partition_count: of a topic. assigned: those of its partitions that are in somebody's target
    assignment."""

    members: Mapping[str, AssignedMember]
    homogeneous: bool
    partition_count: Callable[[UUID], int]
    assigned: Callable[[UUID], Collection[int]]


Assignments = dict[str, Partitions]
"""By member id; who is not in it gets nothing."""
