"""The assignors that members may ask for by name (group.consumer.assignors)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafkalog_broker.groups.modern import range_assignor, uniform_heterogeneous, uniform_homogeneous
from kafkalog_broker.groups.modern.assignor_input import Assignments, GroupSpec


def _uniform(group: GroupSpec) -> Assignments:
    return uniform_homogeneous.assign(group) if group.homogeneous else uniform_heterogeneous.assign(group)


ASSIGNORS: Mapping[str, Callable[[GroupSpec], Assignments]] = {
    "uniform": _uniform,
    "range": range_assignor.assign,
}
