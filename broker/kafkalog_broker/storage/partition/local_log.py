"""The segments of one log and the log end offset: appending to the active one, rolling, reading, removing (LocalLog).

What the offsets mean to producers and consumers is log.py's matter. All but `find_range` and `flush` belongs to one
thread.
"""

from __future__ import annotations

import os
import random
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.storage.partition.cleaned_segment import CleanedSegment
from kafkalog_broker.storage.partition.loaded_log import LoadedLog
from kafkalog_broker.storage.partition.log_flush import Flushing
from kafkalog_broker.storage.partition.log_segment import ActiveSegment, FileHandles, FileSlice, LogSegment, cut_segment
from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format import names
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.layout import H
from kafkalog_spark.log.read.header_windows import Window
from kafkalog_spark.log.write.encoded_batch import EncodedBatch
from kafkalog_spark.log.write.segment_recovery import should_roll

# The offsets that ListOffsets 0 lists: where segments begin, and where the log ends, newest first
# (Log.legacyFetchOffsetsBefore).
#
# Before messages had timestamps this was how a consumer found a place by time: a segment counts as written when its
# file was last modified.

LATEST, EARLIEST = -1, -2

Place = tuple[int, int]
"""An offset, and from when on it counts (ms)."""


def listed_offsets(places: Sequence[Place], timestamp: int, most: int, high_watermark: int) -> list[int]:
    """At most `most` offsets, falling, from the newest one that was there at `timestamp` ms on; LATEST, EARLIEST: from
    the last, from the first one on.

    places: by offset. Consumers see no end above the high watermark, but that.
    """
    if timestamp == LATEST:
        end = len(places)
    elif timestamp == EARLIEST:
        end = min(len(places), 1)
    else:
        end = next((slot for slot in range(len(places), 0, -1) if places[slot - 1][1] <= timestamp), 0)
    found = sorted((offset for offset, _ in places[max(end - most, 0) : end]), reverse=True)
    if found and found[0] > high_watermark:
        return [high_watermark, *(offset for offset in found if offset <= high_watermark)]
    return found


def segment_places(
    segments: Iterable[LogSegment], log_start_offset: int, log_end_offset: int, now_ms: int, *, with_times: bool
) -> list[Place]:
    """Where segments begin, and the log end offset when the last one holds something. with_times: the files are asked
    for theirs; for a thread. A segment that is removed meanwhile is left out. Raises OSError."""
    places = list(_starts(segments, log_start_offset, with_times=with_times))
    if not places or places[-1][0] < log_end_offset:
        places.append((log_end_offset, now_ms))
    return places


def _starts(segments: Iterable[LogSegment], log_start_offset: int, *, with_times: bool) -> Iterator[Place]:
    for segment in segments:
        try:
            modified_ms = os.stat(segment.log_path).st_mtime_ns // 1_000_000 if with_times else 0
        except FileNotFoundError:
            continue
        yield max(segment.base_offset, log_start_offset), modified_ms


# Reading batches by offset: whole batches, as they lie in the file, from one segment at a time (LocalLog.read).

_REMEMBERED = 16
"""Positions that a log remembers: a consumer's next fetch begins where the last one ended. As many consumers of one
partition go on without a search."""


class FoundRange(NamedTuple):
    """slices: where whole batches lie. next_offset: the offset after them; the one asked for when there are none."""

    slices: list[FileSlice]
    next_offset: int


class ReadResult(NamedTuple):
    """chunks: whole batches. next_offset: the offset after them; the one asked for when there are none."""

    chunks: list[bytes]
    next_offset: int


class ReadPositions:
    """Where batches begin that are likely to be read next: offset -> (segment's serial number, position). Not its
    base offset: compaction puts another segment in the place of one."""

    __slots__ = ("_positions",)

    def __init__(self) -> None:
        self._positions: dict[int, tuple[int, int]] = {}

    def put(self, offset: int, serial: int, position: int) -> None:
        positions = self._positions
        positions.pop(offset, None)
        if len(positions) >= _REMEMBERED:
            try:
                del positions[next(iter(positions))]
            except (KeyError, RuntimeError, StopIteration):
                pass  # another thread reads too, and took it
        positions[offset] = (serial, position)

    def get(self, offset: int, serial: int) -> int | None:
        found = self._positions.get(offset)
        return found[1] if found is not None and found[0] == serial else None


def segment_slot(segments: Sequence[LogSegment], offset: int) -> int:
    """Place of the segment that holds `offset`, or would; -1 below the first."""
    return bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1


def find_range(
    segments: Sequence[LogSegment],
    positions: ReadPositions,
    offset: int,
    max_bytes: int,
    up_to: int,
    at_least_one: bool,
) -> FoundRange:
    """Batches from the one that holds `offset` on, all below `up_to`, of at most `max_bytes`.

    at_least_one: the first batch comes whole, however large it is. Raises FileNotFoundError when the segment has been
    removed since, CorruptBatch, OSError.
    """
    slot = max(segment_slot(segments, offset), 0)
    while slot < len(segments) and offset < up_to:
        segment = segments[slot]
        if segment.base_offset >= up_to:
            break
        result = _find_in_segment(segment, positions, offset, max_bytes, up_to, at_least_one)
        if result is not None:
            return result
        slot += 1  # the segment ends in a gap, as compaction leaves them
    return FoundRange([], offset)


def _find_in_segment(
    segment: LogSegment, positions: ReadPositions, offset: int, max_bytes: int, up_to: int, at_least_one: bool
) -> FoundRange | None:
    """None when the segment holds nothing at or past `offset`."""
    end, next_offset = segment.end
    if up_to < next_offset:
        bound = segment.locate(up_to)
        end = end if bound is None else bound.position
        next_offset = up_to
    start = positions.get(offset, segment.serial)
    first_size = -1
    if start is None:
        first = segment.locate(offset)
        if first is None:
            return None
        start, first_size = first.position, first.size
    if start >= end:
        return None
    size = end - start
    if size > max_bytes:
        stop, next_offset = segment.boundary(start, start + max_bytes)
        size = stop - start
        if size == 0:
            if not at_least_one:
                return FoundRange([], offset)
            first = next(segment.bounds_from(start), None)
            if first is None:
                raise CorruptBatch("the file is shorter than it was", path=segment.log_path, position=start)
            first_size, next_offset = first.size, first.last_offset + 1
            size = first_size
    found = FileSlice(segment.handle(), start, size)
    positions.put(next_offset, segment.serial, start + size)
    return FoundRange([found], next_offset)


class LogWork(NamedTuple):
    """records: offsets given out. flushes: how many, and what they took together."""

    records: int
    flushes: int
    flush_seconds: float


class LocalLog:
    """segments: by base offset, the last one is the active one; replaced as a whole, so that readers in other threads
    hold one picture of them. log_start_offset: moved by `LogRemoval`. swaps: how often compaction has put other files
    under names that `segments` had before; whoever read meanwhile may have read one file by what another one's index
    says. flushing: what is on disk. jitter: draws what is taken off segment.ms."""

    def __init__(
        self,
        loaded: LoadedLog,
        config: LogConfig,
        now_ms: int,
        handles: FileHandles,
        jitter: random.Random,
    ) -> None:
        self.directory = loaded.directory
        self.config = config
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = self._opened_at = loaded.log_end_offset
        self.swaps = 0
        self._is_abandoned = False
        self.flushing = Flushing(loaded.directory, loaded.recovery_point)
        self._handles = handles
        self._jitter = jitter
        self._positions = ReadPositions()
        ends = [*loaded.base_offsets[1:], loaded.log_end_offset]
        self.segments = tuple(
            self._segment(base_offset, next_offset, now_ms)
            for base_offset, next_offset in zip(loaded.base_offsets, ends, strict=True)
        )

    def _segment(self, base_offset: int, next_offset: int, now_ms: int, *, is_new: bool = False) -> LogSegment:
        path = self.directory / (names.segment_name(base_offset) + names.LOG_SUFFIX)
        most = min(self.config.segment_jitter_ms, self.config.max_segment_ms)
        return LogSegment(
            self.directory,
            base_offset,
            self._handles,
            size=0 if is_new else path.stat().st_size,
            next_offset=next_offset,
            created_ms=now_ms,
            jitter_ms=self._jitter.randrange(most) if most > 0 else 0,
        )

    @property
    def work(self) -> LogWork:
        """Counts since the log was opened."""
        records = max(0, self.log_end_offset - self._opened_at)
        return LogWork(records, self.flushing.count, self.flushing.seconds)

    @property
    def active(self) -> LogSegment:
        return self.segments[-1]

    def is_time_to_roll(self, batch: BatchHeader, now_ms: int) -> bool:
        """True when `batch` needs a new segment. Opens the active segment's writer. Raises OSError, CorruptBatch."""
        segment = self.segments[-1]
        writer = segment.writer or self._open_writer(segment)
        due = self._is_due(batch, now_ms, writer.size, writer.first_timestamp, indexes_full=writer.indexes_full)
        # An empty segment whose index has no room (KAFKA-6388) is not replaced by one of the same name.
        return due and batch.base_offset > segment.base_offset

    def how_many_fit(self, window: Window, now_ms: int) -> int:
        """How many of a window's batches go into the active segment, whose writer is open; the first one does."""
        writer = self.segments[-1].writer
        assert writer is not None
        size, first_timestamp, room = writer.size, writer.first_timestamp, writer.room_for_batches
        for row in range(len(window.table)):
            batch = window.header(row)
            if row and (
                size + batch.size - writer.size > room
                or self._is_due(batch, now_ms, size, first_timestamp, indexes_full=False)
            ):
                return row
            size += batch.size
            if first_timestamp is None:
                first_timestamp = batch.max_timestamp
        return len(window.table)

    def _is_due(
        self, batch: BatchHeader, now_ms: int, size: int, first_timestamp: int | None, *, indexes_full: bool
    ) -> bool:
        segment, config = self.segments[-1], self.config
        return should_roll(
            size=size,
            base_offset=segment.base_offset,
            first_timestamp=first_timestamp,
            created_ms=segment.created_ms,
            indexes_full=indexes_full,
            incoming_size=batch.size,
            incoming_last_offset=batch.last_offset,
            incoming_max_timestamp=batch.max_timestamp,
            now_ms=now_ms,
            segment_bytes=config.segment_bytes,
            segment_ms=config.max_segment_ms,
            jitter_ms=segment.jitter_ms,
        )

    def _open_writer(self, segment: LogSegment) -> ActiveSegment:
        config = self.config
        if segment.writer is None:
            segment.open_writer(config.index_entry_bytes, config.segment_index_bytes)
            self._preallocate(segment)
        assert segment.writer is not None
        return segment.writer

    def _preallocate(self, segment: LogSegment) -> None:
        """As Kafka, a segment that holds something already goes on growing as it is written."""
        if self.config.preallocate and segment.writer is not None and not segment.size:
            segment.writer.preallocate(self.config.segment_bytes)

    def append(self, batch: EncodedBatch) -> LogSegment:
        """Write to the active segment, whose writer is open. Raises OSError, CorruptBatch; nothing has changed then."""
        segment = self.segments[-1]
        writer = segment.writer
        assert writer is not None
        writer.append(batch)
        end = batch.header.last_offset + 1
        self.log_end_offset = end
        segment.end = (writer.size, end)
        return segment

    def append_all(self, window: Window) -> LogSegment:
        """As `append`, for a window of batches that fit. Raises OSError; the log ends with the last whole one then."""
        segment, table = self.segments[-1], window.table
        writer = segment.writer
        assert writer is not None
        begin = int(table[0, H.POSITION]) - window.start
        end = int(table[-1, H.POSITION] + table[-1, H.SIZE]) - window.start
        try:
            writer.append_all(window.data[begin:end], table[:, (H.SIZE, H.LAST_OFFSET, H.MAX_TIMESTAMP)].tolist())
        finally:
            if writer.size > segment.size:
                self.log_end_offset = writer.next_offset
                segment.end = (writer.size, writer.next_offset)
        return segment

    def roll(self, now_ms: int) -> None:
        """Go on in a new segment at the log end offset. Raises OSError; the old one stays the active one then."""
        old, config, base_offset = self.segments[-1], self.config, self.log_end_offset
        self._open_writer(old).on_become_inactive()
        new = self._segment(base_offset, base_offset, now_ms, is_new=True)
        new.create(config.index_entry_bytes, config.segment_index_bytes)
        self._preallocate(new)
        self.flushing.rolled()
        self.segments = (*self.segments, new)

    def find_range(self, offset: int, max_bytes: int, up_to: int, at_least_one: bool) -> FoundRange:
        """As the function `find_range`."""
        return find_range(self.segments, self._positions, offset, max_bytes, up_to, at_least_one)

    def segments_from(self, offset: int) -> tuple[LogSegment, ...]:
        """The segment that holds `offset`, and those after it."""
        segments = self.segments
        return segments[max(segment_slot(segments, offset), 0) :]

    def remove_first(self, count: int) -> list[tuple[LogSegment, list[Path]]]:
        """Remove the oldest segments; each with its files, renamed `.deleted`. Raises OSError."""
        removed, self.segments = self.segments[:count], self.segments[count:]
        renamed = []
        for segment in removed:
            renamed.append((segment, segment.rename_for_deletion()))
            self.flushing.removed(segment)
        return renamed

    def replace(
        self, old: Sequence[LogSegment], cleaned: Sequence[CleanedSegment], now_ms: int
    ) -> list[tuple[LogSegment, list[Path]]]:
        """Put finished segments, by base offset, into the place of `old`, neighbours (LocalLog.replaceSegments); each
        of these with its files, renamed `.deleted`. Raises LookupError when not all of them are here any more; OSError,
        and then the log must be loaded again."""
        slot = next((place for place, segment in enumerate(self.segments) if segment is old[0]), len(self.segments))
        after = slot + len(old)
        if after >= len(self.segments) or any(
            one is not other for one, other in zip(self.segments[slot:after], old, strict=True)
        ):
            raise LookupError(f"{self.directory} has no longer the segment {old[0].base_offset} and those after it")
        for piece in reversed(cleaned):  # while the lowest is `.cleaned`, none counts
            piece.to_swap()
        ends = [*(piece.base_offset for piece in cleaned[1:]), old[-1].next_offset]
        new = [
            LogSegment.cleaned(piece, self._handles, next_offset=end, created_ms=now_ms)
            for piece, end in zip(cleaned, ends, strict=True)
        ]
        # Before any file that a reader may ask for gets another content: see `swaps`.
        self.segments = (*self.segments[:slot], *new, *self.segments[after:])
        self.swaps += 1
        renamed = []
        for segment in old:
            renamed.append((segment, segment.rename_for_deletion()))
            self.flushing.removed(segment)
        for piece, segment in zip(cleaned, new, strict=True):
            piece.to_live()
            segment.swapped_in()
        self.swaps += 1
        self.flushing.rolled()
        return renamed

    def truncate_to(self, offset: int) -> list[tuple[LogSegment, list[Path]]]:
        """Let the log end at `offset`, where a batch begins or a gap is (LocalLog.truncateTo); the segments past it,
        each with its files, renamed `.deleted`. The caller holds flushing.lock. Raises OSError, CorruptLog; then the
        log must be loaded again, and is a beginning of what it was."""
        slot = max(segment_slot(self.segments, offset), 0)
        old, removed = self.segments[slot], self.segments[slot + 1 :]
        bounds = old.locate(offset)
        position = old.size if bounds is None else bounds.position
        kept = self._replacing(old, position, offset)
        self.segments = (*self.segments[:slot], kept)  # first, as in `replace`
        self.log_end_offset = offset
        self.swaps += 1
        renamed = self._rename_backwards(removed)
        old.close_writer()
        old.forget_handles()
        cut_segment(kept, position, offset)
        self._shortened(offset)
        return renamed

    def start_over(self, offset: int) -> list[tuple[LogSegment, list[Path]]]:
        """Remove all segments and begin with an empty one at `offset`. As `truncate_to`."""
        removed = self.segments
        new = self._segment(offset, offset, removed[-1].created_ms, is_new=True)
        self.segments = (new,)
        self.log_end_offset = offset
        self.swaps += 1
        renamed = self._rename_backwards(removed)
        new.create(self.config.index_entry_bytes, self.config.segment_index_bytes)
        self._preallocate(new)
        self._shortened(offset)
        return renamed

    def _replacing(self, old: LogSegment, size: int, next_offset: int) -> LogSegment:
        """The segment as another object: what was remembered of the old one does not count for it."""
        return LogSegment(
            self.directory, old.base_offset, self._handles, size=size, next_offset=next_offset,
            created_ms=old.created_ms, jitter_ms=old.jitter_ms,
        )  # fmt: skip

    def _rename_backwards(self, segments: Sequence[LogSegment]) -> list[tuple[LogSegment, list[Path]]]:
        """The last one first: whenever it ends, what is left is a beginning of the log."""
        renamed = []
        for segment in reversed(segments):
            renamed.append((segment, segment.rename_for_deletion()))
            self.flushing.removed(segment)
        return renamed

    def _shortened(self, offset: int) -> None:
        self.swaps += 1
        self.flushing.truncated(offset)

    def needs_flush(self, now_ms: int) -> bool:
        config = self.config
        return self.flushing.is_due(
            now_ms, config.flush_messages, config.flush_ms, self.segments, self.log_end_offset
        )  # fmt: skip

    def flush(self, *, whole: bool = False) -> int:
        """Put everything on disk; up to which offset that was. The caller holds flushing.lock. Raises OSError."""
        end = self.log_end_offset  # before the segments are read: they hold everything below then
        self.flushing.flush(self.segments, end, whole=whole)
        return end

    def release_files(self) -> None:
        """Close the active segment's writer cleanly, unless a flush is going on. Raises OSError."""
        if self.active.writer is not None and self.flushing.lock.acquire(blocking=False):
            try:
                self.active.close_writer()
            finally:
                self.flushing.lock.release()

    def abandon(self) -> None:
        """Close all files as they are; when a flush is going on, as soon as it has ended: it calls `flushed`."""
        self._is_abandoned = True
        self.flushed()

    def flushed(self) -> None:
        """A flush has ended, and the caller does not hold flushing.lock any more."""
        if self._is_abandoned and self.flushing.lock.acquire(blocking=False):
            try:
                self.flushing.abandon()
                for segment in self.segments:
                    segment.abandon()
            finally:
                self.flushing.lock.release()
