"""Commits of offsets without an event loop."""

from __future__ import annotations

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.groups.group_coordinator import GroupCoordinator
from kafkalog_broker.groups.offset_commit import PreparedCommit
from kafkalog_broker.groups.offset_requests import CommitRequest


def commit_at_once(coordinator: GroupCoordinator, request: CommitRequest) -> list[ErrorCode]:
    """Prepare all of it, then commit."""
    steps = coordinator.prepare_commit(request)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            prepared: PreparedCommit = done.value
            break
    return coordinator.shard(request.group_id).commit(request, prepared)
