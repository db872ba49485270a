"""What leaves a log: records below a new log start offset, segments by retention, segments that compaction replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.partition.availability import Availability, Subscribers
from kafkalog_broker.storage.partition.cleaned_segment import CleanedSegment
from kafkalog_broker.storage.partition.leader_epochs import LeaderEpochs
from kafkalog_broker.storage.partition.local_log import LocalLog
from kafkalog_broker.storage.partition.log_flush import ProducerSnapshots
from kafkalog_broker.storage.partition.log_segment import LogSegment
from kafkalog_broker.storage.partition.producer_replay import producers_at
from kafkalog_broker.storage.partition.producer_state import ProducerState
from kafkalog_spark.errors import CorruptLog, UnsupportedFormat

# Which segments a log may drop: decisions on plain values (UnifiedLog.deleteOldSegments).
#
# Three reasons, in Kafka's order: the segment lies below the log start offset, the log is larger than
# retention.bytes, the segment is older than retention.ms. Each goes through the segments from the oldest on and
# stops at the first that stays. With a cleanup.policy without `delete` only the first reason counts.

UNLIMITED = -1
"""Of retention.ms and retention.bytes: any negative value switches the reason off."""


class Reason(Enum):
    """Why segments go; the value is what the broker's log says."""

    LOG_START_OFFSET = "it lies below the log start offset"
    SIZE = "the log is larger than retention.bytes"
    TIME = "it is older than retention.ms"


class SegmentFacts(NamedTuple):
    """What retention asks of a segment.

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
    """What goes: the first `count` segments, the n-th of them for reasons[n].

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
    segments: Sequence[SegmentFacts],
    policy: RetentionPolicy,
    *,
    log_start_offset: int,
    high_watermark: int,
    log_end_offset: int,
    now_ms: int,
) -> Deletion:
    """Which of `segments` (by base offset; the last one is the active one) are to be deleted now.

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


class LogRemoval:
    """Moves the log start offset of `local`, and with it what epochs, producers and snapshots know of what is gone."""

    def __init__(
        self,
        name: str,
        local: LocalLog,
        epochs: LeaderEpochs,
        producers: ProducerState,
        snapshots: ProducerSnapshots,
        availability: Availability,
        subscribers: Subscribers,
    ) -> None:
        self._name = name
        self._local = local
        self._epochs = epochs
        self._producers = producers
        self._snapshots = snapshots
        self._availability = availability
        self._subscribers = subscribers

    def delete_records(self, offset: int, high_watermark: int) -> None:
        """As Log.delete_records."""
        self._availability.check()
        if not self._local.config.is_deleted:
            raise BrokerError(
                ErrorCode.policy_violation,
                "records are deleted only of topics whose cleanup.policy contains delete",
                topic_partition=self._name,
            )
        wanted = high_watermark if offset == -1 else offset
        if not 0 <= wanted <= high_watermark:
            raise BrokerError(
                ErrorCode.offset_out_of_range,
                f"offset {offset}, records can be deleted up to the high watermark {high_watermark}",
                topic_partition=self._name,
                offset=offset,
            )
        self.move_log_start(wanted)

    def move_log_start(self, offset: int) -> None:
        """Let the log begin at `offset`, not above the high watermark; nothing where it begins there already, or
        later."""
        if offset <= self._local.log_start_offset:
            return
        self._local.log_start_offset = offset
        try:
            self._epochs.truncate_from_start(offset)
        except OSError as error:
            self._availability.fail(error)
        self._producers.on_log_start_offset(offset)
        self._subscribers.wake()

    def delete_old_segments(self, high_watermark: int, now_ms: int, roll: Callable[[int], None]) -> list[Path]:
        """As Log.delete_old_segments. roll: begins a new segment, at `now_ms`."""
        self._availability.check()
        local, config = self._local, self._local.config
        try:
            deletion = decide(
                [
                    SegmentFacts(segment.base_offset, segment.size, segment.largest_timestamp)
                    for segment in local.segments
                ],
                RetentionPolicy(config.retention_ms, config.retention_bytes, config.is_deleted),
                log_start_offset=local.log_start_offset,
                high_watermark=high_watermark,
                log_end_offset=local.log_end_offset,
                now_ms=now_ms,
            )
            if not deletion:
                return []
            if deletion.roll_first:
                roll(now_ms)
            # Of producers whose records are gone a start after a crash knows what snapshots say. These are written
            # first, as Kafka does at the roll; while they cannot be, nothing goes until the next check.
            if not local.flushing.write_snapshots():
                return []
            self.move_log_start(deletion.log_start_offset)
            gone: list[Path] = []
            for segment, files in local.remove_first(deletion.count):
                gone += files + self._snapshots.remove(segment.base_offset)
            return gone
        except OSError as error:
            self._availability.fail(error)

    def replace_segments(self, cleaned: Sequence[CleanedSegment], old: Sequence[LogSegment], now_ms: int) -> list[Path]:
        """As Log.replace_segments."""
        self._availability.check()
        try:
            gone: list[Path] = []
            for segment, files in self._local.replace(old, cleaned, now_ms):
                gone += files
                if all(segment.base_offset != piece.base_offset for piece in cleaned):
                    gone += self._snapshots.remove(segment.base_offset)
            return gone
        except OSError as error:
            self._availability.fail(error)


# Let a log end earlier: at an offset, or as a whole, to begin at another one (UnifiedLog.truncateTo).
#
# Files change in an order in which they are a log at every step, a beginning of the old one: segments from the last
# one on, then the .log that is cut, its indexes, then producer snapshots and leader epochs, which loading compares
# with the log's end. Where truncation begins below the recovery point of a checkpoint, that has to be lowered before
# (LogManager.lower_checkpoints): what is written next is not on disk yet.


class TruncationPoint(NamedTuple):
    """Where a log is to end, and what is known of its producers there."""

    log_end_offset: int
    producers: ProducerState


class Truncation:
    """Of one log, in whose owner's thread all but `plan` is called."""

    def __init__(
        self,
        local: LocalLog,
        epochs: LeaderEpochs,
        producers: ProducerState,
        snapshots: ProducerSnapshots,
        removal: LogRemoval,
        availability: Availability,
    ) -> None:
        self._local = local
        self._epochs = epochs
        self._producers = producers
        self._snapshots = snapshots
        self._removal = removal
        self._availability = availability

    def plan(self, offset: int) -> TruncationPoint:
        """Where the log ends when nothing at or above `offset` is to stay: there, or where the batch begins that holds
        it. Reads producer snapshots and up to a segment; any thread, while nobody appends. Raises BrokerError."""
        self._availability.check()
        try:
            segments = self._local.segments
            if offset <= segments[0].base_offset:
                return TruncationPoint(max(offset, 0), ProducerState(max(offset, 0)))
            kept = [segment for segment in segments if segment.base_offset <= offset]
            bounds = kept[-1].locate(offset)
            end = offset if bounds is None else min(offset, bounds.base_offset)
            sizes = [(segment.base_offset, segment.size) for segment in kept]
            if bounds is not None:
                sizes[-1] = (sizes[-1][0], bounds.position)
            return TruncationPoint(end, producers_at(self._local.directory, end, self._snapshots.offsets(), sizes))
        except (OSError, CorruptLog) as error:
            self._availability.fail(error, nothing_happened=True)
        except UnsupportedFormat as error:
            self._availability.fail(OSError(str(error)))

    def apply(self, point: TruncationPoint) -> list[Path]:
        """Cut the log there; the files, renamed `.deleted`, that may be removed now. Waits for a flush under way.
        Raises BrokerError."""
        self._availability.check()
        end = point.log_end_offset
        if end >= self._local.log_end_offset:
            # As Kafka: an epoch that began at the end and has written nothing may be another one at the leader.
            self._guarded_epochs(self._local.log_end_offset)
            return []
        if end < self._local.segments[0].base_offset:
            return self.start_over(end, end)
        with self._local.flushing.lock:
            try:
                gone = [path for _, files in self._local.truncate_to(end) for path in files]
                gone += self._snapshots.truncate(end)
            except (OSError, CorruptLog) as error:
                self._availability.fail(error)
            self._guarded_epochs(end)
            self._producers.become(point.producers)
            self._local.log_start_offset = min(self._local.log_start_offset, end)
        return gone

    def start_over(self, offset: int, log_start_offset: int) -> list[Path]:
        """Forget everything and begin at `offset` (truncateFullyAndStartAt); records below `log_start_offset` will not
        be read. As `apply`."""
        self._availability.check()
        with self._local.flushing.lock:
            try:
                gone = [path for _, files in self._local.start_over(offset) for path in files]
                gone += self._snapshots.truncate(-1)
                self._epochs.clear()
            except (OSError, CorruptLog) as error:
                self._availability.fail(error)
            self._producers.clear(offset)
            self._local.log_start_offset = log_start_offset
        return gone

    def _guarded_epochs(self, end: int) -> None:
        try:
            self._epochs.truncate_from_end(end)
        except OSError as error:
            self._availability.fail(error)
