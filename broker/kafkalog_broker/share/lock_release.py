"""Release of acquired records: those of a leaving member, and those whose acquisition lock has expired."""

from __future__ import annotations

from collections.abc import Callable

from kafkalog_broker.groups.modern.group_settings import Limits
from kafkalog_broker.share.in_flight_batch import Run
from kafkalog_broker.share.record_state import RecordState
from kafkalog_broker.share.share_partition import NEVER, SharePartition
from kafkalog_broker.share.state_change import StateChange


def release_member(partition: SharePartition, member_id: str, limits: Limits) -> StateChange:
    """Release all records that a member has acquired."""
    return _release(partition, lambda run: run.member_id == member_id, limits)


def release_expired(partition: SharePartition, now_ms: int, limits: Limits) -> StateChange:
    """Release the records whose acquisition lock has expired, and update `next_lock_deadline`."""
    change = _release(partition, lambda run: run.lock_deadline <= now_ms, limits)
    deadlines = (run.lock_deadline for _, run in partition.acquired_runs())
    partition.next_lock_deadline = min(deadlines, default=NEVER)
    return change


def _release(partition: SharePartition, is_released: Callable[[Run], bool], limits: Limits) -> StateChange:
    """Release runs. A member may still hold offsets before the start offset; these are archived."""
    change = StateChange(partition)
    start = partition.start_offset
    for batch, run in [(batch, run) for batch, run in partition.acquired_runs() if is_released(run)]:
        change.save(batch)
        if partition.begins_within(batch):
            batch.has_offset_state = True
        first, last = run.first, run.last
        if first < start:
            for part in list(batch.runs_between(first, min(last, start - 1))):
                part.unlock(RecordState.ARCHIVED)
                change.add(part)
        for part in list(batch.runs_between(max(first, start), last)):
            part.release(limits.max_deliveries)
            change.add(part)
    return change
