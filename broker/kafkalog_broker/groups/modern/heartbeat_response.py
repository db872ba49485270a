"""Response values of heartbeats of consumer, share and streams groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kafkalog_broker.groups.modern.group_records import Partitions


class HeartbeatResponse(NamedTuple):
    """Response to a heartbeat of a consumer or share group.

    Attributes:
        interval_ms: Time until the next heartbeat.
        assignment: None if it has not changed.
    """

    member_id: str = ""
    member_epoch: int = 0
    interval_ms: int = 0
    assignment: Partitions | None = None


def assignment_in_response(assigned: Mapping[Any, Iterable[int]]) -> Partitions:
    return {key: tuple(partitions) for key, partitions in assigned.items()}
