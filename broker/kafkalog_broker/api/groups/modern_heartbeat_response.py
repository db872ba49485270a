"""Response to the heartbeat of a consumer or share group."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.groups.modern.heartbeat_response import HeartbeatResponse
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response


def heartbeat_response(request: Request, result: HeartbeatResponse) -> Any:
    """Return the response of a consumer or share group's heartbeat."""
    assignment = None
    if result.assignment is not None:
        topics = [{"topic_id": topic_id, "partitions": indexes} for topic_id, indexes in result.assignment.items()]
        assignment = {"topic_partitions": topics}
    return build_response(
        request, member_id=result.member_id, member_epoch=result.member_epoch,
        heartbeat_interval=result.interval_ms, assignment=assignment,
    )  # fmt: skip
