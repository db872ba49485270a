"""Loading of the log of one partition from its directory (Kafka: `LogLoader`).

After a clean shutdown only the end of the active segment and the newest producer snapshot are read. After a crash every
segment from the recovery point on is checked batch by batch. The log is truncated at the first bad batch, later
segments are removed, and indexes, leader epochs, transaction indexes and producer state are rebuilt from the batches.

When `load_log` returns, the files have the same form as after a clean shutdown, but are not flushed: the recovery point
stays, and the next flush syncs the files that recovery wrote. Files are synced immediately only where a second crash
could leave a mix of old and new files: between dependent removals and renames, and before a truncation (see
`_remove_later_segments`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kafkalog_broker.storage.partition.leader_epochs import LeaderEpochs
from kafkalog_broker.storage.partition.loaded_log import LoadedLog
from kafkalog_broker.storage.partition.overflowing_segment import split_segment
from kafkalog_broker.storage.partition.producer_replay import first_bad_marker, newest_snapshot, replay, replay_segments
from kafkalog_broker.storage.partition.producer_state import ProducerState
from kafkalog_broker.storage.recovery.startup_files import clean_up
from kafkalog_spark.errors import CorruptBatch, CorruptFile, CorruptLog, KafkalogError, UnsupportedFormat
from kafkalog_spark.format import names
from kafkalog_spark.format.atomic_file import replace_bytes
from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.format.fsync import fsync_directory
from kafkalog_spark.format.index_file import MAX_INDEX_SIZE, MAX_RELATIVE_OFFSET
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.format.offset_index import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from kafkalog_spark.format.offset_index import load_offset_index
from kafkalog_spark.format.producer_snapshot import write_producer_snapshot
from kafkalog_spark.format.regular_file import descriptor
from kafkalog_spark.format.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from kafkalog_spark.format.transaction_index import AbortedTransaction, format_transaction, load_transaction_index
from kafkalog_spark.log.read.header_windows import Window
from kafkalog_spark.log.read.local_log_dir import log_files
from kafkalog_spark.log.write.header_reader import end_of_closed_segment, headers_from
from kafkalog_spark.log.write.ordered_windows import OffsetOverflow
from kafkalog_spark.log.write.segment_recovery import RecoveredSegment, recover_segment
from kafkalog_spark.log.write.segment_roll import INDEX_INTERVAL_BYTES
from kafkalog_spark.log.write.segment_writer import SegmentWriter

_log = logging.getLogger(__name__)

_DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """Arguments of `load_log`: everything about a log that is not in its directory.

    Attributes:
        clean: True if the log directory was shut down cleanly.
        recovery_point: Checkpointed recovery point, 0 without one.
        log_start_offset: Checkpointed log start offset, 0 without one.
        has_remote_segments: True if the log may begin below its first local segment.
        is_compacted: True if compaction may have left gaps between the segments.
        contiguous_from: Offset from which on compaction has left no gap between segments. A gap above it means that
            unflushed records were lost. None if unknown.
        may_recover: False on a thread that must not block for the time of a recovery.
    """

    directory: Path
    clean: bool
    recovery_point: int = 0
    log_start_offset: int = 0
    index_interval_bytes: int = INDEX_INTERVAL_BYTES
    max_index_size: int = MAX_INDEX_SIZE
    now_ms: int = 0
    producer_id_expiration_ms: int = _DAY_MS
    has_remote_segments: bool = False
    is_compacted: bool = True
    contiguous_from: int | None = None
    may_recover: bool = True


class RecoveryNeeded(KafkalogError):
    """The log's segments have to be read before it can be opened, but `may_recover` is False."""


def bytes_to_recover(directory: Path, recovery_point: int) -> int:
    """Return the number of bytes that `load_log` would scan after a crash."""
    files = log_files(directory)
    first = _floor(list(files), recovery_point)
    return sum(facts.st_size for base, facts in files.items() if base >= first)


def load_log(request: LoadRequest, on_bytes: Callable[[int], None] | None = None) -> LoadedLog:
    """Clean up and recover the directory of a log.

    Args:
        on_bytes: Called with numbers of bytes that recovery has scanned.

    Raises:
        CorruptLog: If a flushed segment, which recovery does not check, is damaged.
        RecoveryNeeded: If recovery is needed, but `may_recover` is False.
        OSError: If a file cannot be read or written.
    """
    while True:
        try:
            return _Loader(request, on_bytes).load()
        except OffsetOverflow as overflow:
            bases = split_segment(request.directory, overflow.base_offset, request.index_interval_bytes)
            _log.warning("%s; the segment was split into %s", overflow, ", ".join(map(str, bases)))


class _Loader:
    def __init__(self, request: LoadRequest, on_bytes: Callable[[int], None] | None) -> None:
        self._request = request
        self._directory = request.directory
        self._on_bytes = on_bytes
        may_complete = not (request.clean or request.is_compacted)
        self._files = files = clean_up(request.directory, completes_retention=may_complete)
        self._bases = list(files.base_offsets)
        self._snapshots = list(files.snapshots)
        self._recovered: list[RecoveredSegment] = []
        self._new_snapshots: list[Path] = []
        self._epochs = LeaderEpochs(request.directory)
        self._producers = ProducerState()

    def load(self) -> LoadedLog:
        request, files = self._request, self._files
        recover_from = self._recover_from()
        # Missing indexes are rebuilt here, except those of segments that recovery rebuilds anyway.
        incomplete = [
            base for base in self._bases if base not in files.complete and (recover_from is None or base < recover_from)
        ]
        if not request.may_recover and (incomplete or recover_from is not None):
            raise RecoveryNeeded("an index or the leader epoch checkpoint must be rebuilt", path=str(self._directory))
        for base in incomplete:
            _log.warning("%s lacks an index; rebuilding its indexes", self._path(base, names.LOG_SUFFIX))
            recover_segment(self._directory, base, request.index_interval_bytes, may_truncate=False, sync=True)
        if recover_from is not None:
            end = self._recover(recover_from)
        else:
            end = self._end_of_closed_log()
        first = self._bases[0] if self._bases and not request.has_remote_segments else 0
        start = max(request.log_start_offset, first)
        if not self._bases or end < start:
            end = self._start_over(start, end)
        # The epoch of a leader that has not written yet begins at the log end. Kafka drops such an entry here, because
        # its controllers know the epoch. Here only this file does, so the entry stays unless its batches were cut off.
        cut = any(segment.damage is not None for segment in self._recovered)
        self._epochs.truncate_from_end(end if cut else end + 1)
        self._epochs.truncate_from_start(start)
        if not (request.clean or request.has_remote_segments):
            self._find_epochs_below_first(start)
        self._epochs.flush()
        self._restore_producers(start, end)
        needed_cleanup = bool(files.returned or files.removals or files.renames)
        return LoadedLog(
            directory=self._directory,
            base_offsets=self._bases,
            log_start_offset=start,
            log_end_offset=end,
            recovery_point=min(request.recovery_point, end) if self._recovered or not request.clean else end,
            epochs=self._epochs,
            producers=self._producers,
            recovered=self._recovered,
            is_synced=request.clean and not needed_cleanup and not (self._recovered or self._new_snapshots),
            unsynced_snapshots=self._new_snapshots if request.clean else (),
        )

    def _recover_from(self) -> int | None:
        """Return the base offset of the first segment to check; None if no segment needs recovery."""
        candidates: list[int] = []
        if not self._request.clean and self._bases:
            first = _floor(self._bases, self._request.recovery_point)
            before = max((base for base in self._bases if base < first), default=first)
            candidates.append(before if self._has_padded_index(before) else first)
        try:
            self._epochs = LeaderEpochs.read(self._directory)
        except (CorruptFile, UnsupportedFormat) as error:
            _log.warning("%s; rebuilding leader epochs from the log", error)
            candidates.append(_floor(self._bases, 0))
        for base in sorted(self._files.transactional):
            try:
                load_transaction_index(self._path(base, names.TRANSACTION_INDEX_SUFFIX), base)
            except (CorruptLog, UnsupportedFormat) as error:
                _log.warning("%s; recovering the segment", error)
                candidates.append(base)
                break
        return min(candidates) if candidates and self._bases else None

    def _has_padded_index(self, base: int) -> bool:
        """Return whether zeros follow the entries of an index, as only in a segment that is being written.

        A clean shutdown syncs the active segment and puts the recovery point at its end. The next start enlarges its
        indexes again, and a roll trims them. If power fails before the flush after the roll, the segment is below the
        recovery point, but its indexes are not trimmed on disk.
        """
        for suffix, entry_size in (
            (names.OFFSET_INDEX_SUFFIX, OFFSET_ENTRY_SIZE), (names.TIME_INDEX_SUFFIX, TIME_ENTRY_SIZE),
        ):  # fmt: skip
            try:
                with descriptor(self._path(base, suffix)) as fd:
                    size = os.fstat(fd).st_size
                    last = os.pread(fd, entry_size, max(size - entry_size, 0))
            except FileNotFoundError:
                continue  # `load` rebuilds it
            if size and not any(last):
                return True
        return False

    def _recover(self, first: int) -> int:
        """Check the segments from `first` on, and return the log end offset."""
        self._load_producers_at(first)
        end = first
        for slot in range(self._bases.index(first), len(self._bases)):
            base = self._bases[slot]
            aborted: list[AbortedTransaction] = []

            def on_window(window: Window, aborted: list[AbortedTransaction] = aborted) -> None:
                aborted += replay(self._producers, window)
                self._assign_epochs(window)

            later = self._bases[slot + 1 :]
            segment = recover_segment(
                self._directory, base, self._request.index_interval_bytes, on_window, self._on_bytes,
                find_bad_batch=first_bad_marker, before_truncation=partial(self._remove_later_segments, later),
            )  # fmt: skip
            if aborted:
                data = b"".join(map(format_transaction, aborted))
                replace_bytes(self._path(base, names.TRANSACTION_INDEX_SUFFIX), data)
            elif base in self._files.transactional:
                self._path(base, names.TRANSACTION_INDEX_SUFFIX).unlink(missing_ok=True)
            self._recovered.append(segment)
            end = segment.next_offset
            if segment.damage is not None:
                _log.warning("%s; truncated the segment by %d bytes", segment.damage, segment.truncated_bytes)
                del self._bases[slot + 1 :]
                break
            if later and self._are_records_missing(end, later[0]):
                _log.warning(
                    "%s ends at offset %d, the next segment begins at %d: unflushed records between them were lost",
                    self._path(base, names.LOG_SUFFIX), end, later[0],
                )  # fmt: skip
                self._remove_later_segments(later)
                del self._bases[slot + 1 :]
                break
            if later:
                self._snapshot(later[0])
        return end

    def _are_records_missing(self, end: int, next_base: int) -> bool:
        """Return whether records between two segments were lost in a power failure.

        A new segment may reach the disk before the end of the previous one. Segments after such a gap are not kept, so
        that the log remains a prefix of the appended records, and an idempotent producer cannot append twice. In gaps
        that retention or compaction left, no records are missing.
        """
        contiguous_from = self._request.contiguous_from
        if contiguous_from is None or not max(end, contiguous_from) < next_base:
            return False
        return not any(end <= deleted < next_base for deleted in self._files.deleted)

    def _remove_later_segments(self, bases: Sequence[int]) -> None:
        """Remove the segments after the truncated one durably. Must be called before the truncation.

        Otherwise a power failure could undo a removal, but not the truncation, and leave a gap before the segment.
        """
        for base in bases:
            _log.warning("%s follows the truncated segment and is removed", self._path(base, names.LOG_SUFFIX))
            self._remove_segment(base)
        if bases:
            fsync_directory(self._directory)

    def _assign_epochs(self, window: Window) -> None:
        epochs = window.table[:, HeaderColumn.LEADER_EPOCH]
        while (epochs > self._epochs.latest).any():
            row = int((epochs > self._epochs.latest).argmax())
            self._epochs.assign(int(epochs[row]), int(window.table[row, HeaderColumn.BASE_OFFSET]))

    def _find_epochs_below_first(self, start: int) -> None:
        """Add the epochs of records that were deleted, but reappeared after a crash.

        DeleteRecords and retention truncate the leader epochs before the new log start offset is checkpointed.
        """
        entries = self._epochs.entries
        if not entries or entries[0].start_offset <= start:
            return
        first = entries[0].start_offset
        found_entries: list[EpochEntry] = []
        for base in self._bases:
            if base >= first:
                break
            path = self._path(base, names.LOG_SUFFIX)
            with descriptor(path) as fd:
                for header in headers_from(fd, 0, os.fstat(fd).st_size):
                    if header.base_offset >= first:
                        break
                    if header.leader_epoch < 0 or (found_entries and header.leader_epoch < found_entries[-1].epoch):
                        return  # written by a broker without leader epochs
                    if header.last_offset >= start and (
                        not found_entries or header.leader_epoch > found_entries[-1].epoch
                    ):
                        found_entries.append(EpochEntry(header.leader_epoch, max(header.base_offset, start)))
        if found_entries:
            self._epochs.replace(
                [*found_entries, *(entry for entry in entries if entry.epoch > found_entries[-1].epoch)]
            )

    def _end_of_closed_log(self) -> int:
        """Return the log end offset of a log that needs no recovery, from the headers after the last index entry.

        If the index is wrong, the segment is recovered.
        """
        if not self._bases:
            return 0
        base = self._bases[-1]
        path = self._path(base, names.LOG_SUFFIX)
        index = load_offset_index(self._path(base, names.OFFSET_INDEX_SUFFIX), base)
        with descriptor(path) as fd:
            try:
                last_entry = index.floor(base + MAX_RELATIVE_OFFSET)
                return end_of_closed_segment(fd, base, last_entry, os.fstat(fd).st_size)
            except (CorruptBatch, UnsupportedFormat) as error:
                _log.warning("%s; recovering the segment", error.at(path=str(path)))
        return self._recover(base)

    def _start_over(self, start: int, end: int) -> int:
        """Create an empty log at `start`, because the directory is empty or the log ends before its log start offset.

        The first append assigns a leader epoch again.
        """
        if self._bases:
            _log.warning(
                "%s ends at offset %d, before its log start offset %d; removing its segments and starting there",
                self._directory,
                end,
                start,
            )
        for base in self._bases:
            self._remove_segment(base)
        for offset in self._snapshots:
            self._path(offset, names.PRODUCER_SNAPSHOT_SUFFIX).unlink(missing_ok=True)
        self._epochs.clear()
        self._snapshots, self._recovered, self._new_snapshots = [], [], []
        self._producers = ProducerState(start)
        SegmentWriter.create(self._directory, start, max_index_size=self._request.max_index_size).close()
        self._bases = [start]
        return start

    def _remove_segment(self, base: int) -> None:
        for suffix in names.SEGMENT_SUFFIXES:
            self._path(base, suffix).unlink(missing_ok=True)

    def _restore_producers(self, start: int, end: int) -> None:
        """Load producer state as of the log end, and remove snapshots that do not belong to the log."""
        if not self._recovered:
            self._load_producers_at(end)
        for offset in [offset for offset in self._snapshots if offset > end]:
            self._remove_snapshot(offset)
        aligned = set(self._bases)
        strays = [offset for offset in self._snapshots if offset not in aligned]
        for offset in strays[:-1]:  # as removeStraySnapshots; the newest one may have been written by the last close
            self._remove_snapshot(offset)
        self._producers.end_offset = end
        self._producers.on_log_start_offset(start)
        self._producers.expire(self._request.now_ms, self._request.producer_id_expiration_ms)
        if self._recovered:
            self._snapshot(end)

    def _load_producers_at(self, offset: int) -> None:
        """Load producer state as of `offset`, a segment's base offset or the log end.

        Uses the newest good snapshot and the batches after it.
        """
        had_snapshots = bool(self._snapshots)
        # A snapshot below the first segment is outdated: its producers may have written batches that are deleted, and
        # their next sequence would be refused. An unknown producer may begin with any sequence.
        for known in [known for known in self._snapshots if known < min(self._bases, default=0)]:
            path = self._path(known, names.PRODUCER_SNAPSHOT_SUFFIX)
            _log.warning("%s is removed, because the log now begins at offset %d", path, self._bases[0])
            self._remove_snapshot(known)
        state, damaged = newest_snapshot(self._directory, [known for known in self._snapshots if known <= offset])
        for known in damaged:
            self._remove_snapshot(known)
        self._producers = state or ProducerState(offset)
        # A cleanly closed log without snapshots has no producers; as in Kafka it is not scanned. A log with damaged
        # snapshots only must be scanned, because open transactions hide records from consumers.
        if state is None and not had_snapshots and self._request.clean:
            # With these snapshots a start after a crash need not scan the log either (`rebuildProducerState`).
            for known in (*self._bases[-2:], offset):
                self._snapshot(known)
            return
        since = state.end_offset if state is not None else min(self._bases, default=offset)
        try:
            if since < offset:
                segments = [(base, None) for base in self._bases if base < offset]
                replay_segments(self._producers, self._directory, segments, since)
        except (CorruptBatch, UnsupportedFormat) as error:  # a flushed segment is not truncated here
            _log.warning("%s; producer state ends there", error)

    def _snapshot(self, offset: int) -> None:
        if offset <= max(self._request.log_start_offset, *self._bases[:1]):
            return
        path = self._path(offset, names.PRODUCER_SNAPSHOT_SUFFIX)
        # After a clean shutdown the event loop opens the log and must not wait for the disk; the next flush syncs it.
        write_producer_snapshot(path, self._producers.entries(), sync=not self._request.clean)
        if path not in self._new_snapshots:
            self._new_snapshots.append(path)
        if offset not in self._snapshots:
            self._snapshots = sorted([*self._snapshots, offset])

    def _remove_snapshot(self, offset: int) -> None:
        self._path(offset, names.PRODUCER_SNAPSHOT_SUFFIX).unlink(missing_ok=True)
        self._snapshots.remove(offset)

    def _path(self, offset: int, suffix: str) -> Path:
        return self._directory / (names.segment_name(offset) + suffix)


def _floor(bases: list[int], offset: int) -> int:
    return max((base for base in bases if base <= offset), default=bases[0] if bases else 0)
