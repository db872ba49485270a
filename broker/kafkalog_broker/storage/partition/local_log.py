"""The files of one partition's log: segments, the log end offset, what is on disk, producer snapshots (LocalLog).

What the offsets mean to producers and consumers is log.py's matter. All but `find_range` and `flush` belongs to one
thread. Flushing runs in another one while the log's writer goes on: `flush_lock` is held for the whole of a flush;
nothing that appends or reads takes it.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import NamedTuple
from uuid import UUID

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.storage.partition.cleaned_segment import CleanedSegment
from kafkalog_broker.storage.partition.file_handles import FileSlice
from kafkalog_broker.storage.partition.leader_epochs import LeaderEpochs
from kafkalog_broker.storage.partition.log_segment import LogSegment, cut_segment, segments_from
from kafkalog_broker.storage.partition.producer_state import Producer, ProducerState
from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format import names
from kafkalog_spark.format.atomic_file import FILE_MODE, fsync_directory, fsync_file, replace_files_in
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.checkpoint import LEADER_EPOCH_CHECKPOINT, EpochEntry, format_leader_epochs
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.format.partition_metadata import PARTITION_METADATA_FILE, format_partition_metadata
from kafkalog_spark.format.producer_snapshot import write_producer_snapshot
from kafkalog_spark.log.read.segment_file import Window
from kafkalog_spark.log.write.encoded_batch import EncodedBatch
from kafkalog_spark.log.write.segment_recovery import RecoveredSegment
from kafkalog_spark.log.write.segment_roll import should_roll
from kafkalog_spark.log.write.segment_writer import SegmentWriter

_JITTER = random.Random()  # draws what is taken off segment.ms; one for all: each is 2.5 kB
_REMEMBERED = 16  # positions that a log remembers: as many consumers of one partition fetch on without a search


@dataclass(slots=True, kw_only=True)
class LoadedLog:
    """A log that can be opened: `directory` holds the segments `base_offsets`, whole, with their indexes. recovered:
    those that were checked. recovery_point: the log is flushed up to there. is_synced: True if every file and every
    name in the directory is on disk. unsynced_snapshots: producer snapshots whose bytes may not be on disk yet."""

    directory: Path
    base_offsets: list[int]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    epochs: LeaderEpochs
    producers: ProducerState
    recovered: Sequence[RecoveredSegment] = ()
    is_synced: bool = False
    unsynced_snapshots: Sequence[Path] = ()


def create_log_files(directory: Path, topic_id: UUID, *, log_start_offset: int, leader_epoch: int) -> LoadedLog:
    """Create the files of an empty log in `directory`, with trimmed indexes; on disk on return.

    The leader epoch has to be on disk before the first record: a log that lost its lineage would give up its remote
    segments (Kafka: `LeaderEpochFileCache.assign`, `PartitionMetadataFile`).

    Raises:
        FileExistsError: If the directory has the segment already.
        OSError: If a file cannot be written or synced.
    """
    segment = os.path.join(directory, names.segment_name(log_start_offset))
    for suffix in (names.LOG_SUFFIX, names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX):
        os.close(os.open(segment + suffix, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
    epochs = [EpochEntry(leader_epoch, log_start_offset)]
    replace_files_in(directory, {
        PARTITION_METADATA_FILE: format_partition_metadata(topic_id),
        LEADER_EPOCH_CHECKPOINT: format_leader_epochs(epochs),
    })  # fmt: skip
    return LoadedLog(
        directory=directory, base_offsets=[log_start_offset], log_start_offset=log_start_offset,
        log_end_offset=log_start_offset, recovery_point=log_start_offset, epochs=LeaderEpochs(directory, epochs),
        producers=ProducerState(log_start_offset), is_synced=True,
    )  # fmt: skip


class FoundRange(NamedTuple):
    """next_offset: the offset after the slices; the one asked for when there are none."""

    slices: list[FileSlice]
    next_offset: int


class LocalLog:
    """segments: by base offset, the last one active; replaced as a whole, so that readers in other threads hold one
    picture of them. swaps: how often compaction has put other files under names that `segments` had; whoever read
    meanwhile may have read one file by what another one's index says. recovery_point: everything below is on disk.
    opened_at: the log end offset when it was opened. flushes, flush_seconds: how many there were since, and what they
    took together.

    What is on disk is known by four facts, which `flush` brings up to date: `recovery_point`, `is_synced` of each
    segment, `is_flushed` of the leader epochs, and whether names in the directory have changed."""

    def __init__(self, loaded: LoadedLog, config: LogConfig, now_ms: int) -> None:
        self.directory = loaded.directory
        self.config = config
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = self.opened_at = loaded.log_end_offset
        self.swaps = 0
        self._is_abandoned = False
        # offset -> (segment's serial number, position): where batches begin that are likely to be read next. Not the
        # segment's base offset: compaction puts another segment in the place of one.
        self._positions: dict[int, tuple[int, int]] = {}
        ends = [*loaded.base_offsets[1:], loaded.log_end_offset]
        self.segments = tuple(
            self._segment(base_offset, next_offset, now_ms)
            for base_offset, next_offset in zip(loaded.base_offsets, ends, strict=True)
        )
        self.recovery_point = loaded.recovery_point
        recovered = {segment.base_offset for segment in loaded.recovered}
        for segment in self.segments:
            is_below = segment.next_offset <= loaded.recovery_point and segment.base_offset not in recovered
            segment.is_synced = loaded.is_synced or is_below
        self.epochs = loaded.epochs
        self.flush_lock = threading.RLock()
        self.flushes, self.flush_seconds = 0, 0.0
        self._names_changed = not loaded.is_synced  # files created or renamed since the last fsync of the directory
        self._unsynced_snapshots = list(loaded.unsynced_snapshots)
        self._has_unsynced_segment = not all(segment.is_synced for segment in self.segments[:-1])
        self._removed: deque[LogSegment] = deque()  # by retention, their writers still open
        self._unflushed_since_ms: int | None = None
        self._last_append_ms = 0
        self._producers = loaded.producers
        self._snapshots: dict[Path, list[Producer]] = {}  # to be written
        self._last_snapshot = -1

    def _segment(self, base_offset: int, next_offset: int, now_ms: int, *, is_new: bool = False) -> LogSegment:
        path = self.directory / (names.segment_name(base_offset) + names.LOG_SUFFIX)
        size = 0 if is_new else path.stat().st_size
        most = min(self.config.segment_jitter_ms, self.config.max_segment_ms)
        jitter_ms = _JITTER.randrange(most) if most > 0 else 0
        return LogSegment(self.directory, base_offset, (size, next_offset), now_ms, jitter_ms)

    @property
    def active(self) -> LogSegment:
        return self.segments[-1]

    # ---- appending

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
            batch,
            base_offset=segment.base_offset,
            size=size,
            first_timestamp=first_timestamp,
            age_ms=now_ms - segment.created_ms,
            indexes_full=indexes_full,
            segment_bytes=config.segment_bytes,
            segment_ms=config.max_segment_ms - segment.jitter_ms,
        )

    def _open_writer(self, segment: LogSegment, *, is_new: bool = False) -> SegmentWriter:
        if segment.writer is None:
            config = self.config
            segment.open_writer(config.index_entry_bytes, config.segment_index_bytes, is_new=is_new)
            # As Kafka, a segment that holds something already goes on growing as it is written.
            if config.preallocate and segment.writer is not None and not segment.size:
                segment.writer.preallocate(config.segment_bytes)
        assert segment.writer is not None
        return segment.writer

    def append(self, batch: EncodedBatch, now_ms: int) -> LogSegment:
        """Write to the active segment, whose writer is open. Raises OSError, CorruptBatch; nothing has changed then."""
        segment = self.segments[-1]
        writer = segment.writer
        assert writer is not None
        writer.append(batch)
        end = batch.header.last_offset + 1
        self.log_end_offset = end
        segment.end = (writer.size, end)
        self.appended(now_ms)
        return segment

    def append_all(self, window: Window) -> LogSegment:
        """As `append`, for batches that fit; then call `appended`. OSError: the log ends with the last whole one."""
        segment, table = self.segments[-1], window.table
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
                segment.end = (writer.size, writer.next_offset)
        return segment

    def appended(self, now_ms: int) -> None:
        if self._unflushed_since_ms is None:
            self._unflushed_since_ms = now_ms
        self._last_append_ms = now_ms

    def roll(self, now_ms: int) -> None:
        """Go on in a new segment, with a producer snapshot. After OSError, CorruptLog the old segment stays active."""
        self._open_writer(self.segments[-1]).on_become_inactive()
        new = self._segment(self.log_end_offset, self.log_end_offset, now_ms, is_new=True)
        self._open_writer(new, is_new=True)
        self._names_changed = True
        self.segments = (*self.segments, new)
        self._has_unsynced_segment = True
        self.take_snapshot()

    # ---- reading: whole batches by offset, as they lie in the file, from one segment at a time

    def find_range(self, offset: int, max_bytes: int, up_to: int, at_least_one: bool) -> FoundRange:
        """As Log.find_range. Raises FileNotFoundError when the segment has been removed since, CorruptBatch,
        OSError."""
        if offset < up_to:
            for segment in segments_from(self.segments, offset):
                if segment.base_offset >= up_to:
                    break
                result = self._find_in(segment, offset, max_bytes, up_to, at_least_one)
                if result is not None:  # else the segment ends in a gap, as compaction leaves them
                    return result
        return FoundRange([], offset)

    def _find_in(
        self, segment: LogSegment, offset: int, max_bytes: int, up_to: int, at_least_one: bool
    ) -> FoundRange | None:
        """None when the segment holds nothing at or past `offset`."""
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
            stop, next_offset = segment.boundary(start, start + max_bytes)
            size = stop - start
            if size == 0:
                if not at_least_one:
                    return FoundRange([], offset)
                first = next(segment.bounds_from(start), None)
                if first is None:
                    raise CorruptBatch("the file is shorter than it was", path=segment.log_path, position=start)
                size, next_offset = first.size, first.last_offset + 1
        found = FileSlice(segment.handle(), start, size)
        self._remember(next_offset, segment.serial, start + size)
        return FoundRange([found], next_offset)

    def _remember(self, offset: int, serial: int, position: int) -> None:
        positions = self._positions
        positions.pop(offset, None)
        if len(positions) >= _REMEMBERED:
            try:
                del positions[next(iter(positions))]
            except (KeyError, RuntimeError, StopIteration):
                pass  # another thread reads too, and took it
        positions[offset] = (serial, position)

    # ---- removing

    def remove_first(self, count: int) -> list[Path]:
        """Remove the oldest segments; their files and producer snapshots, renamed `.deleted`. Raises OSError."""
        removed, self.segments = self.segments[:count], self.segments[count:]
        self._names_changed = True
        gone = self._rename_away(removed)
        return gone + self._remove_snapshots(segment.base_offset for segment in removed)

    def begin_replace(
        self, old: Sequence[LogSegment], cleaned: Sequence[CleanedSegment], now_ms: int
    ) -> tuple[list[LogSegment], list[Path]]:
        """Serve the `.swap` files of `cleaned` instead of `old`, which are neighbours (LocalLog.replaceSegments).

        The caller has put the names of the `.swap` files on disk. It fsyncs the directory before it calls
        `finish_replace`: while old segments could come back under their names, the new ones keep the suffix by which a
        start after a crash recognises that they take precedence.

        Returns:
            The new segments, and the files of the old ones, renamed `.deleted`.

        Raises:
            LookupError: If not all of `old` are closed segments of this log any more; nothing has changed.
            OSError: If a file cannot be renamed; the log has to be loaded again.
        """
        slot = next((slot for slot, segment in enumerate(self.segments) if segment is old[0]), len(self.segments))
        after = slot + len(old)
        if after >= len(self.segments) or any(
            segment is not other for segment, other in zip(self.segments[slot:after], old, strict=True)
        ):
            raise LookupError(f"{self.directory} has no longer the segment {old[0].base_offset} and those after it")
        ends = [*(piece.base_offset for piece in cleaned[1:]), old[-1].next_offset]
        new = [
            LogSegment(
                self.directory, piece.base_offset, (piece.size, end), now_ms,
                transient=names.SWAP_SUFFIX, is_synced=True,
                _max_timestamp=piece.max_timestamp, _transactions=list(piece.aborted),
            )
            for piece, end in zip(cleaned, ends, strict=True)
        ]  # fmt: skip
        # Before any file that a reader may ask for gets another content: see `swaps`.
        self.segments = (*self.segments[:slot], *new, *self.segments[after:])
        self.swaps += 1
        renamed = self._rename_away(old)
        self._names_changed = True
        bases = {piece.base_offset for piece in cleaned}
        return new, renamed + self._remove_snapshots(s.base_offset for s in old if s.base_offset not in bases)

    def finish_replace(self, new: Sequence[LogSegment], cleaned: Sequence[CleanedSegment]) -> None:
        """Give the segments of `begin_replace` their plain names; the caller fsyncs the directory. Raises OSError."""
        for piece, segment in zip(cleaned, new, strict=True):
            if any(segment is other for other in self.segments):  # else retention has renamed its files meanwhile
                piece.to_live()
                segment.swapped_in()
        self.swaps += 1
        self._names_changed = True

    def truncate_to(self, offset: int) -> list[Path]:
        """Let the log end at `offset`, where a batch begins or a gap is (LocalLog.truncateTo); the files past it,
        renamed `.deleted`. The caller holds flush_lock. Raises OSError, CorruptLog: the log, a beginning of what it
        was, must be loaded again."""
        old, *removed = segments_from(self.segments, offset)
        bounds = old.locate(offset)
        position = old.size if bounds is None else bounds.position
        # Another object: what was remembered of the old one does not count for it.
        kept = LogSegment(self.directory, old.base_offset, (position, offset), old.created_ms, old.jitter_ms)
        self.segments = (*self.segments[: -1 - len(removed)], kept)  # first, as in `replace`
        self.log_end_offset = offset
        self.swaps += 1
        renamed = self._rename_away(removed[::-1])  # whenever it ends, what is left is a beginning of the log
        if removed:
            fsync_directory(self.directory)  # none of them may come back behind the cut
        old.close_writer()
        old.forget_handles()
        cut_segment(kept, position, offset)
        return renamed + self._shortened(offset, offset)

    def start_over(self, offset: int) -> list[Path]:
        """Remove all segments and begin with an empty one at `offset`. As `truncate_to`."""
        removed = self.segments
        new = self._segment(offset, offset, removed[-1].created_ms, is_new=True)
        self.segments = (new,)
        self.log_end_offset = offset
        self.swaps += 1
        renamed = self._rename_away(removed[::-1])
        self._open_writer(new, is_new=True)
        return renamed + self._shortened(offset, -1)

    def _rename_away(self, segments: Iterable[LogSegment]) -> list[Path]:
        renamed = []
        for segment in segments:
            renamed += segment.rename_for_deletion()
            if segment.writer is not None or segment.transaction_writer is not None:
                self._removed.append(segment)  # its writer is closed as soon as no flush is using it
                if self.flush_lock.acquire(blocking=False):
                    try:
                        self._close_removed()
                    finally:
                        self.flush_lock.release()
        return renamed

    def _shortened(self, end: int, last_snapshot: int) -> list[Path]:
        """The log ends at `end` now: producer snapshots above `last_snapshot` go, renamed `.deleted`."""
        self.swaps += 1
        self.recovery_point = min(self.recovery_point, end)
        self._names_changed = True
        self._last_snapshot = -1  # one at `end` may be missing: closing has to take it
        for path in list(self._snapshots):
            if int(path.stem) > last_snapshot:
                del self._snapshots[path]
        return self._remove_snapshots(offset for offset in self.snapshot_offsets() if offset > last_snapshot)

    # ---- producer snapshots, one where each segment begins (ProducerStateManager.takeSnapshot)

    def take_snapshot(self) -> bool:
        """Take the snapshot of the log end offset, once; the next flush writes it, since that takes 3 us a producer.
        False when it is there already, or nothing was ever appended."""
        offset = self._producers.end_offset = self.log_end_offset
        path = self._snapshot_path(offset)
        if offset <= self._last_snapshot or offset == 0 or path.exists():
            return False
        self._last_snapshot = offset
        self._snapshots[path] = self._producers.producers()
        self._names_changed = True
        return True

    def snapshot_offsets(self) -> list[int]:
        """Of the snapshots on disk, rising. Raises OSError."""
        suffix = names.PRODUCER_SNAPSHOT_SUFFIX
        stems = (path.name.removesuffix(suffix) for path in self.directory.glob(f"*{suffix}"))
        return sorted(int(stem) for stem in stems if stem.isdecimal())

    def producer_snapshot(self, offset: int) -> Path | None:
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

    # ---- flushing

    def needs_flush(self, now_ms: int) -> bool:
        """True if the settings, a rolled segment or its producer snapshot require a flush."""
        if self._snapshots or self._has_unsynced_segment:
            return True
        unflushed = self.log_end_offset - self.recovery_point
        if unflushed <= 0:
            return False
        config, since = self.config, self._unflushed_since_ms
        return unflushed >= config.flush_messages or (
            since is not None and not 0 <= now_ms - since < config.flush_ms  # below 0: the clock was set back
        )

    @property
    def synced_offset(self) -> int:
        """Offset below which all files of all segments are on disk; the recovery point that may be checkpointed.

        `recovery_point` may lie in, or at the end of, a segment of which only the .log was flushed. A start after a
        crash recovers the segments from the checkpoint on, in Kafka too, and has to begin with that segment.
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
        """Put the log on disk and raise the recovery point (UnifiedLog.flush); the caller holds `flush_lock`.

        The order is: leader epochs, producer snapshots, closed segments with all their files, the .log of the active
        segment, the names in the directory. Of the active segment only the .log is synced, because a start after a
        crash builds its indexes again from the batches.

        Args:
            whole: Sync the indexes of the active segment too, as a clean shutdown needs it. Nothing may be appended
                afterwards.

        Returns:
            The offset below which everything is on disk.

        Raises:
            OSError: If a file cannot be synced; the recovery point has not moved.
        """
        end = self.log_end_offset  # before the segments are read: they hold everything below then
        has_unsynced_segment, self._has_unsynced_segment = self._has_unsynced_segment, False
        segments = self.segments
        appended_until, began = self._last_append_ms, perf_counter()
        self._close_removed()
        try:
            self.epochs.flush()
            self._flush_snapshots()
            if has_unsynced_segment:
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
            self._has_unsynced_segment |= has_unsynced_segment
            raise
        # What was appended since has been waiting since then at the earliest.
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
        """Close all files as they are; when a flush is going on, as soon as it has ended: it calls `flushed`."""
        self._is_abandoned = True
        self.flushed()

    def flushed(self) -> None:
        if self._is_abandoned and self.flush_lock.acquire(blocking=False):
            try:
                self._close_removed()
                self._snapshots.clear()
                for segment in self.segments:
                    segment.abandon()
            finally:
                self.flush_lock.release()

    def _close_removed(self) -> None:
        while self._removed:
            self._removed.popleft().abandon()
