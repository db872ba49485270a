"""Removal from one log: DeleteRecords, segments by retention, segments replaced by compaction.

Retention has three reasons, in Kafka's order (UnifiedLog.deleteOldSegments): the segment lies below the log start
offset, the log is larger than retention.bytes, the segment is older than retention.ms. Each goes through the segments
from the oldest on and stops at the first that stays. With a cleanup.policy without `delete` only the first counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.partition.cleaned_segment import CleanedSegment
from kafkalog_broker.storage.partition.log_segment import LogSegment
from kafkalog_broker.storage.partition.log_state import LogState
from kafkalog_spark.format import names
from kafkalog_spark.format.layout import NO_TIMESTAMP
from kafkalog_spark.format.time_index import load_time_index
from kafkalog_spark.log.read.discovery import log_files

UNLIMITED = -1
"""Value of retention.ms and retention.bytes that switches the reason off, as any negative one does."""


class Reason(Enum):
    """Reason of a deletion; the value is its text in the broker's log."""

    LOG_START_OFFSET = "it lies below the log start offset"
    SIZE = "the log is larger than retention.bytes"
    TIME = "it is older than retention.ms"


class RetentionSegment(NamedTuple):
    """Input of `decide` for one segment.

    largest_timestamp: ms; of a segment whose records have none, the .log file's time of modification (LogSegment).
    """

    base_offset: int
    size: int
    largest_timestamp: int


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """retention_ms (ms) and retention_bytes of the topic; `deletes`: its cleanup.policy contains `delete`."""

    retention_ms: int
    retention_bytes: int
    deletes: bool = True


@dataclass(frozen=True, slots=True)
class Deletion:
    """Segments to delete: the first `count`, the n-th of them for reasons[n].

    `roll_first`: these are all segments, so an empty one must be made at the log end offset before they go.
    `log_start_offset`: where the log begins without them; the caller moves there before a file is renamed.
    """

    count: int
    reasons: tuple[Reason, ...]
    log_start_offset: int
    roll_first: bool

    def __bool__(self) -> bool:
        return self.count > 0


def decide(
    segments: Sequence[RetentionSegment],
    policy: RetentionPolicy,
    *,
    log_start_offset: int,
    high_watermark: int,
    log_end_offset: int,
    now_ms: int,
) -> Deletion:
    """The segments to delete now. segments: by base offset; the last one is the active one.

    No segment goes that holds offsets at or above the high watermark, and never an active one that is empty.
    """
    reasons: list[Reason] = []

    def upper_bound(slot: int) -> int:
        return segments[slot + 1].base_offset if slot + 1 < len(segments) else log_end_offset

    def extend(reason: Reason, goes: Callable[[int], bool]) -> None:
        for slot in range(len(reasons), len(segments)):
            is_last = slot + 1 == len(segments)
            if is_last and segments[slot].size == 0:
                return
            if high_watermark < upper_bound(slot) or not goes(slot):
                return
            reasons.append(reason)

    # The active segment has no next one, whose base offset the log start offset could have reached.
    extend(
        Reason.LOG_START_OFFSET,
        lambda slot: slot + 1 < len(segments) and upper_bound(slot) <= log_start_offset,
    )
    if policy.deletes:
        if policy.retention_bytes >= 0:
            surplus = sum(segment.size for segment in segments[len(reasons) :]) - policy.retention_bytes

            def is_surplus(slot: int) -> bool:
                nonlocal surplus
                if surplus < segments[slot].size or surplus < 0:
                    return False
                surplus -= segments[slot].size
                return True

            extend(Reason.SIZE, is_surplus)
        if policy.retention_ms >= 0:
            extend(Reason.TIME, lambda slot: now_ms - segments[slot].largest_timestamp > policy.retention_ms)
    count = len(reasons)
    new_start = max(log_start_offset, upper_bound(count - 1)) if count else log_start_offset
    return Deletion(count, tuple(reasons), new_start, count > 0 and count == len(segments))


def may_be_due(directory: Path, config: LogConfig, log_start_offset: int, now_ms: int) -> bool:
    """False when `decide` would drop nothing of a log that is not open, by its files alone. Raises OSError."""
    segments = log_files(directory)
    bases = list(segments)
    if not bases or (len(bases) == 1 and segments[bases[0]].st_size == 0):
        return False
    first = bases[0]
    if len(bases) > 1 and bases[1] <= log_start_offset:
        return True
    if not config.is_deleted:
        return False
    total = sum(facts.st_size for facts in segments.values())
    if 0 <= config.retention_bytes <= total - segments[first].st_size:
        return True
    if config.retention_ms < 0:
        return False
    last = load_time_index(directory / (names.segment_name(first) + names.TIME_INDEX_SUFFIX), first).last
    largest = NO_TIMESTAMP if last is None else last.timestamp
    if largest == NO_TIMESTAMP:
        largest = segments[first].st_mtime_ns // 1_000_000
    return now_ms - largest > config.retention_ms


def delete_records(state: LogState, offset: int) -> None:
    """Raise the log start offset to `offset`, -1 for the high watermark (DeleteRecords). Raises BrokerError:
    offset_out_of_range, policy_violation for a topic without cleanup.policy delete."""
    state.check()
    if not state.local.config.is_deleted:
        raise BrokerError(
            ErrorCode.policy_violation,
            "records are deleted only of topics whose cleanup.policy contains delete",
            topic_partition=state.name,
        )
    wanted = state.high_watermark if offset == -1 else offset
    if not 0 <= wanted <= state.high_watermark:
        raise BrokerError(
            ErrorCode.offset_out_of_range,
            f"offset {offset}, records can be deleted up to the high watermark {state.high_watermark}",
            topic_partition=state.name,
            offset=offset,
        )
    state.move_log_start(wanted)


def delete_old_segments(state: LogState, now_ms: int) -> list[Path]:
    """Drop the segments that `decide` names; their files, renamed `.deleted`. Raises BrokerError."""
    state.check()
    local, config = state.local, state.local.config
    try:
        deletion = decide(
            [
                RetentionSegment(segment.base_offset, segment.size, segment.largest_timestamp)
                for segment in local.segments
            ],
            RetentionPolicy(config.retention_ms, config.retention_bytes, config.is_deleted),
            log_start_offset=local.log_start_offset,
            high_watermark=state.high_watermark,
            log_end_offset=local.log_end_offset,
            now_ms=now_ms,
        )
        if not deletion:
            return []
        if deletion.roll_first:
            state.roll(now_ms)
        # Of producers whose records are gone a start after a crash knows what snapshots say. These are written
        # first, as Kafka does at the roll; while they cannot be, nothing goes until the next check.
        if not local.flushing.write_snapshots():
            return []
        state.move_log_start(deletion.log_start_offset)
        gone: list[Path] = []
        for segment, files in local.remove_first(deletion.count):
            gone += files + state.snapshots.remove(segment.base_offset)
        return gone
    except OSError as error:
        state.fail(error)


def replace_segments(
    state: LogState, cleaned: Sequence[CleanedSegment], old: Sequence[LogSegment], now_ms: int
) -> list[Path]:
    """Put segments that the cleaner wrote into the place of `old`; the files of these, renamed `.deleted`. Raises
    LookupError when the log has no longer all of them, BrokerError."""
    state.check()
    try:
        gone: list[Path] = []
        for segment, files in state.local.replace(old, cleaned, now_ms):
            gone += files
            if all(segment.base_offset != piece.base_offset for piece in cleaned):
                gone += state.snapshots.remove(segment.base_offset)
        return gone
    except OSError as error:
        state.fail(error)
