"""The server-side assignors of consumer groups, by their names in group.consumer.assignors."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafkalog_broker.groups.assignors.group_spec import Assignments, GroupSpec
from kafkalog_broker.groups.assignors.range_assignor import assign_ranges
from kafkalog_broker.groups.assignors.uniform_heterogeneous_assignor import assign_heterogeneous
from kafkalog_broker.groups.assignors.uniform_homogeneous_assignor import assign_homogeneous


def assign_uniform(group: GroupSpec) -> Assignments:
    """Assign equally many partitions to all members, as far as their subscriptions allow (UniformAssignor)."""
    return assign_homogeneous(group) if group.is_homogeneous else assign_heterogeneous(group)


CONSUMER_ASSIGNORS: Mapping[str, Callable[[GroupSpec], Assignments]] = {
    "uniform": assign_uniform,
    "range": assign_ranges,
}
