"""Files of one partition's log: segments, log end offset, recovery point and producer snapshots (Kafka: `LocalLog`).

log.py adds the rules for producers and consumers. Everything except `find_range` and `flush` runs on the thread that
owns the log. A flush runs on another thread while appends continue: it holds `flush_lock` throughout, and neither
appends nor reads take that lock.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.storage.partition.cleaned_segment import CleanedSegment
from kafkalog_broker.storage.partition.file_handles import FileSlice
from kafkalog_broker.storage.partition.loaded_log import LoadedLog
from kafkalog_broker.storage.partition.log_segment import LogSegment, cut_segment, segments_from
from kafkalog_broker.storage.partition.producer_state import Producer
from kafkalog_broker.storage.partition.segment_lookup import SegmentEnd
from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format import names
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.fsync import fsync_directory, fsync_file
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.format.producer_snapshot import write_producer_snapshot
from kafkalog_spark.log.read.header_windows import Window
from kafkalog_spark.log.write.encoded_batch import EncodedBatch
from kafkalog_spark.log.write.segment_roll import should_roll
from kafkalog_spark.log.write.segment_writer import SegmentWriter

_JITTER = random.Random()  # draws segment.jitter.ms; shared by all logs, because each instance takes 2.5 kB
_new_tuple = tuple.__new__  # creates SegmentEnd without its constructor, once per append
_MAX_POSITIONS = 16  # cached positions: this many consumers of one partition resume without a search


class SegmentsReplaced(Exception):
    """Segments that were to be replaced are no longer closed segments of the log. The log is unchanged."""


class FoundRange(NamedTuple):
    """Byte ranges of a read.

    Attributes:
        next_offset: Offset after the slices; the requested offset if there are none.
    """

    slices: list[FileSlice]
    next_offset: int


class LocalLog:
    """Segments of one log, and which of their bytes and names are on disk.

    `flush` maintains four values about the disk: `recovery_point`, `is_synced` of each segment, `is_flushed` of the
    leader epochs, and whether names in the directory have changed since the last fsync of the directory.

    Attributes:
        segments: By base offset, the last one active. The tuple is replaced as a whole, so readers on other threads see
            a consistent list.
        swaps: Incremented whenever truncation or compaction changes files behind names that `segments` already had. A
            reader that sees it change must repeat its read, because it may have combined one file with another's index.
        recovery_point: Offset below which everything is on disk.
        opened_at: Log end offset when the log was opened.
        flushes: Number of flushes since then.
        flush_seconds: Total duration of these flushes.
    """

    def __init__(self, loaded: LoadedLog, config: LogConfig, now_ms: int) -> None:
        self.directory = loaded.directory
        self.config = config
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = self.opened_at = loaded.log_end_offset
        self.swaps = 0
        self._is_abandoned = False
        # offset -> (segment's serial number, position) of batches that are likely to be read next. The serial number
        # identifies the segment; a base offset does not, because compaction replaces segments.
        self._positions: dict[int, tuple[int, int]] = {}
        ends = [*loaded.base_offsets[1:], loaded.log_end_offset]
        self.segments = tuple(
            self._make_segment(base_offset, next_offset, now_ms)
            for base_offset, next_offset in zip(loaded.base_offsets, ends, strict=True)
        )
        self.recovery_point = loaded.recovery_point
        recovered = {segment.base_offset for segment in loaded.recovered}
        for segment in self.segments:
            is_below = segment.next_offset <= loaded.recovery_point and segment.base_offset not in recovered
            segment.is_synced = loaded.is_synced or is_below
        self.epochs = loaded.epochs
        self.flush_lock = threading.RLock()
        self.flushes = 0
        self.flush_seconds = 0.0
        self._names_changed = not loaded.is_synced  # files created or renamed since the last fsync of the directory
        self._unsynced_snapshots = list(loaded.unsynced_snapshots)
        self._has_unsynced_segment = not all(segment.is_synced for segment in self.segments[:-1])
        self._removed_with_open_writers: deque[LogSegment] = deque()  # renamed for deletion
        self._unflushed_since_ms: int | None = None
        self._last_append_ms = 0
        self._producers = loaded.producers
        self._snapshots: dict[Path, list[Producer]] = {}  # taken, but not written yet
        self._last_snapshot = -1

    def _make_segment(self, base_offset: int, next_offset: int, now_ms: int, *, is_new: bool = False) -> LogSegment:
        path = self.directory / (names.segment_name(base_offset) + names.LOG_SUFFIX)
        size = 0 if is_new else path.stat().st_size
        max_jitter_ms = min(self.config.segment_jitter_ms, self.config.max_segment_ms)
        jitter_ms = _JITTER.randrange(max_jitter_ms) if max_jitter_ms > 0 else 0
        return LogSegment(self.directory, base_offset, SegmentEnd(size, next_offset), now_ms, jitter_ms)

    @property
    def active(self) -> LogSegment:
        return self.segments[-1]

    def is_time_to_roll(self, batch: BatchHeader, now_ms: int) -> bool:
        """Return whether `batch` needs a new segment.

        Opens the active segment's writer. Raises OSError, CorruptBatch.
        """
        segment = self.segments[-1]
        writer = segment.writer or self._open_writer(segment)
        is_roll_due = self._is_roll_due(
            batch, now_ms, writer.size, writer.first_timestamp, are_indexes_full=writer.are_indexes_full
        )
        # An empty segment whose index is full (KAFKA-6388) cannot roll: the new one would have the same name.
        return is_roll_due and batch.base_offset > segment.base_offset

    def count_fitting_batches(self, window: Window, now_ms: int) -> int:
        """Return how many of a window's batches fit into the active segment, whose writer is open.

        The first one always fits.
        """
        writer = self.segments[-1].writer
        assert writer is not None
        size, first_timestamp, room = writer.size, writer.first_timestamp, writer.room_for_batches
        for row in range(len(window.table)):
            batch = window.header(row)
            if row and (
                size + batch.size - writer.size > room
                or self._is_roll_due(batch, now_ms, size, first_timestamp, are_indexes_full=False)
            ):
                return row
            size += batch.size
            if first_timestamp is None:
                first_timestamp = batch.max_timestamp
        return len(window.table)

    def _is_roll_due(
        self, batch: BatchHeader, now_ms: int, size: int, first_timestamp: int | None, *, are_indexes_full: bool
    ) -> bool:
        segment = self.segments[-1]
        config = self.config
        return should_roll(
            batch,
            base_offset=segment.base_offset,
            size=size,
            first_timestamp=first_timestamp,
            age_ms=now_ms - segment.created_ms,
            are_indexes_full=are_indexes_full,
            segment_bytes=config.segment_bytes,
            segment_ms=config.max_segment_ms - segment.jitter_ms,
        )

    def _open_writer(self, segment: LogSegment, *, is_new: bool = False) -> SegmentWriter:
        if segment.writer is None:
            config = self.config
            segment.open_writer(config.index_entry_bytes, config.segment_index_bytes, is_new=is_new)
            # As in Kafka, only an empty segment is preallocated.
            if config.preallocate and segment.writer is not None and not segment.size:
                segment.writer.preallocate(config.segment_bytes)
        assert segment.writer is not None
        return segment.writer

    def append(self, batch: EncodedBatch, now_ms: int) -> LogSegment:
        """Write a batch to the active segment, whose writer is open.

        Raises:
            OSError, CorruptBatch: If the batch cannot be written; nothing has changed then.
        """
        segment = self.segments[-1]
        writer = segment.writer
        assert writer is not None
        writer.append(batch)
        end = batch.header.last_offset + 1
        self.log_end_offset = end
        segment.end = _new_tuple(SegmentEnd, (writer.size, end))
        self.record_append_time(now_ms)
        return segment

    def append_all(self, window: Window) -> LogSegment:
        """Write batches that fit into the active segment, whose writer is open.

        The caller calls `record_append_time` afterwards.

        Raises:
            OSError: If not all can be written; the log then ends after the last whole batch.
        """
        segment = self.segments[-1]
        table = window.table
        writer = segment.writer
        assert writer is not None
        begin = int(table[0, HeaderColumn.POSITION]) - window.start
        end = int(table[-1, HeaderColumn.POSITION] + table[-1, HeaderColumn.SIZE]) - window.start
        try:
            writer.append_all(
                window.data[begin:end],
                table[:, (HeaderColumn.SIZE, HeaderColumn.LAST_OFFSET, HeaderColumn.MAX_TIMESTAMP)].tolist(),
            )
        finally:
            if writer.size > segment.size:
                self.log_end_offset = writer.next_offset
                segment.end = SegmentEnd(writer.size, writer.next_offset)
        return segment

    def record_append_time(self, now_ms: int) -> None:
        """Record the time of an append; flush.ms counts from the first one after a flush."""
        if self._unflushed_since_ms is None:
            self._unflushed_since_ms = now_ms
        self._last_append_ms = now_ms

    def roll(self, now_ms: int) -> None:
        """Start a new active segment, and take a producer snapshot.

        After OSError or CorruptLog the old segment stays active.
        """
        self._open_writer(self.segments[-1]).on_become_inactive()
        new = self._make_segment(self.log_end_offset, self.log_end_offset, now_ms, is_new=True)
        self._open_writer(new, is_new=True)
        self._names_changed = True
        self.segments = (*self.segments, new)
        self._has_unsynced_segment = True
        self.take_snapshot()

    def find_range(self, offset: int, max_bytes: int, up_to: int, at_least_one: bool) -> FoundRange:
        """Find the batches that `Log.read_range` returns.

        Raises:
            FileNotFoundError: If the segment was removed meanwhile.
            CorruptBatch: If a batch header is damaged.
            OSError: If a file cannot be read.
        """
        if offset < up_to:
            for segment in segments_from(self.segments, offset):
                if segment.base_offset >= up_to:
                    break
                result = self._find_in(segment, offset, max_bytes, up_to, at_least_one)
                if result is not None:  # otherwise the segment ends in a gap that compaction left
                    return result
        return FoundRange([], offset)

    def _find_in(
        self, segment: LogSegment, offset: int, max_bytes: int, up_to: int, at_least_one: bool
    ) -> FoundRange | None:
        """Search one segment; None if it has no batch at or after `offset`."""
        end, next_offset = segment.end
        if up_to < next_offset:
            bound = segment.locate(up_to)
            end = end if bound is None else bound.position
            next_offset = up_to
        serial, start = self._positions.get(offset, (-1, 0))
        if serial != segment.serial:
            first = segment.locate(offset)
            if first is None:
                return None
            start = first.position
        if start >= end:
            return None
        size = end - start
        if size > max_bytes:
            last_whole = segment.last_batch_end(start, start + max_bytes)
            if last_whole is not None:
                size = last_whole.position - start
                next_offset = last_whole.next_offset
            else:
                if not at_least_one:
                    return FoundRange([], offset)
                first = next(segment.bounds_from(start), None)
                if first is None:
                    raise CorruptBatch("the file has become shorter", path=segment.log_path, position=start)
                size = first.size
                next_offset = first.last_offset + 1
        file_slice = FileSlice(segment.handle(), start, size)
        self._remember(next_offset, segment.serial, start + size)
        return FoundRange([file_slice], next_offset)

    def _remember(self, offset: int, serial: int, position: int) -> None:
        positions = self._positions
        positions.pop(offset, None)
        if len(positions) >= _MAX_POSITIONS:
            try:
                del positions[next(iter(positions))]
            except (KeyError, RuntimeError, StopIteration):
                pass  # another reading thread removed it first
        positions[offset] = (serial, position)

    def has_changed(self, segments: Sequence[LogSegment], swaps: int) -> bool:
        """Return whether files of the segments that a reader searches were removed or replaced since it read `swaps`.

        Args:
            segments: Value of `self.segments` that the reader got after it had read `swaps`.
        """
        return swaps != self.swaps or segments[0] is not self.segments[0]

    def remove_first(self, count: int) -> list[Path]:
        """Remove the oldest segments; return their files and producer snapshots, renamed `.deleted`. Raises OSError."""
        removed, self.segments = self.segments[:count], self.segments[count:]
        self._names_changed = True
        renamed = self._rename_for_deletion(removed)
        return renamed + self._remove_snapshots(segment.base_offset for segment in removed)

    def begin_replace(
        self, old: Sequence[LogSegment], cleaned: Sequence[CleanedSegment], now_ms: int
    ) -> tuple[list[LogSegment], list[Path]]:
        """Serve the `.swap` files of `cleaned` instead of the adjacent segments `old` (`LocalLog.replaceSegments`).

        The caller has fsynced the names of the `.swap` files, and fsyncs the directory again before it calls
        `finish_replace`. Until then, a power failure can bring old segments back under their names. Therefore the new
        ones keep the suffix `.swap`, which takes precedence at the next start.

        Returns:
            The new segments, and the files of the old ones, renamed `.deleted`.

        Raises:
            SegmentsReplaced: If not all of `old` are closed segments of this log any more.
            OSError: If a file cannot be renamed; the log has to be loaded again.
        """
        slot = next((slot for slot, segment in enumerate(self.segments) if segment is old[0]), len(self.segments))
        after = slot + len(old)
        if after >= len(self.segments) or any(
            segment is not other for segment, other in zip(self.segments[slot:after], old, strict=True)
        ):
            raise SegmentsReplaced(
                f"{self.directory} no longer has the {len(old)} segments from {old[0].base_offset} on"
            )
        ends = [*(piece.base_offset for piece in cleaned[1:]), old[-1].next_offset]
        new = [
            LogSegment(
                self.directory, piece.base_offset, SegmentEnd(piece.size, end), now_ms,
                transient_suffix=names.SWAP_SUFFIX, is_synced=True,
                _max_timestamp=piece.max_timestamp, _transactions=list(piece.aborted),
            )
            for piece, end in zip(cleaned, ends, strict=True)
        ]  # fmt: skip
        # Readers must see the new segments before the content behind any file name changes; see `swaps`.
        self.segments = (*self.segments[:slot], *new, *self.segments[after:])
        self.swaps += 1
        renamed = self._rename_for_deletion(old)
        self._names_changed = True
        bases = {piece.base_offset for piece in cleaned}
        return new, renamed + self._remove_snapshots(s.base_offset for s in old if s.base_offset not in bases)

    def finish_replace(self, new: Sequence[LogSegment], cleaned: Sequence[CleanedSegment]) -> None:
        """Rename the segments of `begin_replace` to their plain names.

        The caller fsyncs the directory. Raises OSError.
        """
        for piece, segment in zip(cleaned, new, strict=True):
            if any(segment is other for other in self.segments):  # otherwise retention has renamed its files meanwhile
                piece.to_live()
                segment.drop_transient_suffix()
        self.swaps += 1
        self._names_changed = True

    def truncate_to(self, offset: int) -> list[Path]:
        """Truncate the log to `offset` (`LocalLog.truncateTo`). The caller holds `flush_lock`.

        Args:
            offset: Start of a batch, or an offset in a gap.

        Returns:
            The files of removed segments, renamed `.deleted`.

        Raises:
            OSError, CorruptLog: If it fails half-way; what remains is a prefix of the old log, which must be loaded
                again.
        """
        old, *removed = segments_from(self.segments, offset)
        bounds = old.locate(offset)
        position = old.size if bounds is None else bounds.position
        # A new object, because cached facts of the old one are no longer true.
        kept = LogSegment(self.directory, old.base_offset, SegmentEnd(position, offset), old.created_ms, old.jitter_ms)
        self.segments = (*self.segments[: -1 - len(removed)], kept)  # first, as in `begin_replace`
        self.log_end_offset = offset
        self.swaps += 1
        renamed = self._rename_for_deletion(removed[::-1])  # newest first: after a crash a prefix of the log remains
        if removed:
            fsync_directory(self.directory)  # no segment may reappear after the truncated one
        old.close_writer()
        old.forget_handles()
        cut_segment(kept, position, offset)
        return renamed + self._apply_lower_end(offset, offset)

    def start_over(self, offset: int) -> list[Path]:
        """Remove all segments and create an empty one at `offset` (`LocalLog.truncateFullyAndStartAt`).

        The caller holds `flush_lock`. Returns and raises as `truncate_to`.
        """
        removed = self.segments
        new = self._make_segment(offset, offset, removed[-1].created_ms, is_new=True)
        self.segments = (new,)
        self.log_end_offset = offset
        self.swaps += 1
        renamed = self._rename_for_deletion(removed[::-1])
        self._open_writer(new, is_new=True)
        return renamed + self._apply_lower_end(offset, -1)

    def _rename_for_deletion(self, segments: Iterable[LogSegment]) -> list[Path]:
        """Rename the files of segments to `.deleted`, and close their writers once no flush uses them."""
        renamed = []
        for segment in segments:
            renamed += segment.rename_for_deletion()
            if segment.writer is not None or segment.transaction_writer is not None:
                self._removed_with_open_writers.append(segment)
                if self.flush_lock.acquire(blocking=False):
                    try:
                        self._close_removed()
                    finally:
                        self.flush_lock.release()
        return renamed

    def _apply_lower_end(self, end: int, last_snapshot: int) -> list[Path]:
        """Apply the lower log end offset `end`. Rename producer snapshots above `last_snapshot` to `.deleted`."""
        self.swaps += 1
        self.recovery_point = min(self.recovery_point, end)
        self._names_changed = True
        self._last_snapshot = -1  # the snapshot at `end` may be missing, so closing has to take it
        for path in list(self._snapshots):
            if int(path.stem) > last_snapshot:
                del self._snapshots[path]
        return self._remove_snapshots(offset for offset in self.snapshot_offsets() if offset > last_snapshot)

    def take_snapshot(self) -> bool:
        """Take a producer snapshot at the log end offset; the next flush writes it to its file.

        Each segment has one at its base offset (Kafka: `ProducerStateManager.takeSnapshot`).

        Returns:
            False if the snapshot was already taken, or nothing was ever appended.
        """
        offset = self._producers.end_offset = self.log_end_offset
        path = self._snapshot_path(offset)
        if offset <= self._last_snapshot or offset == 0 or path.exists():
            return False
        self._last_snapshot = offset
        self._snapshots[path] = self._producers.producers()
        self._names_changed = True
        return True

    def snapshot_offsets(self) -> list[int]:
        """Return the offsets of the producer snapshots on disk, ascending. Raises OSError."""
        suffix = names.PRODUCER_SNAPSHOT_SUFFIX
        stems = (path.name.removesuffix(suffix) for path in self.directory.glob(f"*{suffix}"))
        return sorted(int(stem) for stem in stems if stem.isdecimal())

    def producer_snapshot(self, offset: int) -> Path | None:
        """Return the file of the producer snapshot at `offset`, or None if it is missing or not written yet."""
        path = self._snapshot_path(offset)
        return path if path not in self._snapshots and path.exists() else None

    def _remove_snapshots(self, offsets: Iterable[int]) -> list[Path]:
        renamed = []
        for path in map(self._snapshot_path, offsets):
            self._snapshots.pop(path, None)
            if path.exists():
                renamed.append(path.rename(path.with_name(path.name + names.DELETED_SUFFIX)))
        return renamed

    def _snapshot_path(self, offset: int) -> Path:
        return self.directory / (names.segment_name(offset) + names.PRODUCER_SNAPSHOT_SUFFIX)

    def needs_flush(self, now_ms: int) -> bool:
        """True if the settings, a rolled segment or its producer snapshot require a flush."""
        if self._snapshots or self._has_unsynced_segment:
            return True
        unflushed = self.log_end_offset - self.recovery_point
        if unflushed <= 0:
            return False
        if unflushed >= self.config.flush_messages:
            return True
        if self._unflushed_since_ms is None:
            return False
        age_ms = now_ms - self._unflushed_since_ms  # negative if the clock was set back
        return age_ms < 0 or age_ms >= self.config.flush_ms

    @property
    def synced_offset(self) -> int:
        """Offset below which all files of all segments are on disk; the recovery point that may be checkpointed.

        `recovery_point` may lie in, or at the end of, a segment of which only the .log was flushed. After a crash the
        next start recovers the segments from the checkpoint on, as Kafka does, and must include that segment.
        """
        for segment in self.segments:
            if not segment.is_synced:
                return min(self.recovery_point, segment.base_offset)
        return self.recovery_point

    @property
    def is_synced(self) -> bool:
        """True if every file of the log, and every name in its directory, is known to be on disk."""
        return (
            self.recovery_point >= self.log_end_offset
            and self.epochs.is_flushed
            and not (self._names_changed or self._snapshots or self._unsynced_snapshots)
            and all(segment.is_synced for segment in self.segments)
        )

    def flush(self, *, whole: bool = False) -> int:
        """Sync the log to disk and raise the recovery point (`UnifiedLog.flush`). The caller holds `flush_lock`.

        The order is: leader epochs, producer snapshots, closed segments with all their files, the .log of the active
        segment, the names in the directory. Only the .log of the active segment is synced, because a start after a
        crash rebuilds its indexes from the batches.

        Args:
            whole: Sync the indexes of the active segment too, as a clean shutdown requires. Nothing may be appended
                afterwards.

        Returns:
            The offset below which everything is on disk.

        Raises:
            OSError: If a file cannot be synced; the recovery point has not moved.
        """
        # Order matters, because the log may roll on another thread between any two statements: the records below `end`
        # must be in `segments`, and so must each closed segment whose flag is cleared here.
        end = self.log_end_offset
        self._has_unsynced_segment = False
        segments = self.segments
        appended_until = self._last_append_ms
        began = perf_counter()
        self._close_removed()
        try:
            self.epochs.flush()
            self._flush_snapshots()
            for segment in segments[:-1]:
                if not segment.is_synced:
                    segment.flush()
            active = segments[-1]
            if whole:
                active.flush()
            elif active.size:
                active.sync_data()
            self._sync_names()
        except BaseException:
            if not all(segment.is_synced for segment in segments[:-1]):
                self._has_unsynced_segment = True
            raise
        # The time of the first append during this flush is unknown. It is not before `appended_until`, so flush.ms
        # counts from there.
        self._unflushed_since_ms = appended_until if self._last_append_ms > appended_until else None
        self.recovery_point = max(self.recovery_point, end)
        self.flushes += 1
        self.flush_seconds += perf_counter() - began
        return end

    def _flush_snapshots(self) -> None:
        for path, producers in tuple(self._snapshots.items()):
            write_producer_snapshot(path, [producer.entry() for producer in producers])
            if self._snapshots.pop(path, None) is None:
                path.unlink(missing_ok=True)  # its segment was removed meanwhile
        while self._unsynced_snapshots:
            with contextlib.suppress(FileNotFoundError):
                fsync_file(self._unsynced_snapshots[-1])
            self._unsynced_snapshots.pop()

    def _sync_names(self) -> None:
        if self._names_changed:
            self._names_changed = False
            try:
                fsync_directory(self.directory)
            except OSError:
                self._names_changed = True
                raise

    def release_files(self) -> None:
        """Close the active segment's writer cleanly, unless a flush is going on. Raises OSError."""
        if self.active.writer is not None and self.flush_lock.acquire(blocking=False):
            try:
                self.active.close_writer()
            finally:
                self.flush_lock.release()

    def abandon(self) -> None:
        """Close all files without a flush. If a flush is running, they are closed when it has ended."""
        self._is_abandoned = True
        self.close_if_abandoned()

    def close_if_abandoned(self) -> None:
        """Close the files if the log was abandoned and no flush is running. Called after each flush."""
        if self._is_abandoned and self.flush_lock.acquire(blocking=False):
            try:
                self._close_removed()
                self._snapshots.clear()
                for segment in self.segments:
                    segment.abandon()
            finally:
                self.flush_lock.release()

    def _close_removed(self) -> None:
        while self._removed_with_open_writers:
            self._removed_with_open_writers.popleft().abandon()
