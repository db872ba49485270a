"""Load the log of one partition from its directory (LogLoader): tidy up, recover after a crash, restore state.

After a clean shutdown the end of the active segment and the newest producer snapshot are all that is read. After a
crash every segment from the recovery point on is checked batch by batch; the log is cut at the first bad batch, what
follows goes, and indexes, leader epochs, transaction indexes and producer state are made from the batches.

When `load_log` returns, the files are as after a clean shutdown. They are not flushed: the recovery point stays, and
the next flush puts on disk what recovery has written. Only where a second crash could mix old and new files are they
synced at once: between dependent removals and renames, and before a cut (see `_remove_behind_cut`).
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from kafkalog_broker.storage.partition.cleaned_segment import split_segment
from kafkalog_broker.storage.partition.leader_epochs import LeaderEpochs
from kafkalog_broker.storage.partition.local_log import LoadedLog
from kafkalog_broker.storage.partition.producer_state import (
    ProducerState,
    first_bad_marker,
    newest_snapshot,
    replay,
    replay_segments,
)
from kafkalog_spark.errors import CorruptBatch, CorruptFile, CorruptLog, KafkalogError, UnsupportedFormat
from kafkalog_spark.format import names
from kafkalog_spark.format.atomic_file import descriptor, fsync_directory, replace_bytes
from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.format.layout import H
from kafkalog_spark.format.offset_index import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from kafkalog_spark.format.offset_index import MAX_INDEX_SIZE, MAX_RELATIVE_OFFSET, load_offset_index
from kafkalog_spark.format.partition_metadata import UNFINISHED
from kafkalog_spark.format.producer_snapshot import write_producer_snapshot
from kafkalog_spark.format.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from kafkalog_spark.format.transaction_index import AbortedTransaction, format_transaction, load_transaction_index
from kafkalog_spark.log.read.header_windows import Window
from kafkalog_spark.log.read.local_log_dir import log_files
from kafkalog_spark.log.write.segment_recovery import (
    INDEX_INTERVAL_BYTES,
    OffsetOverflow,
    RecoveredSegment,
    end_of_closed_segment,
    headers_from,
    recover_segment,
)
from kafkalog_spark.log.write.segment_writer import SegmentWriter

_log = logging.getLogger(__name__)

_DAY_MS = 24 * 3600 * 1000

# First, before anything is read, the files of the directory are put in order.
#
# An interrupted deletion, cleaning or split leaves files with a suffix. Which of them are the log is decided in
# `names.live_segments`; here the directory is made to hold exactly those, under their plain names. A crash in the
# middle of this leaves a directory that gives the same log again: what is not the log goes before anything gets its
# name, and `.cleaned` files, whose presence marks `.swap` files as unfinished, go last. The directory is synced between
# these steps, because a power cut may keep a later rename and lose an earlier one.


class StartupFiles(NamedTuple):
    """Plan for a directory: remove files, then rename (old name, new name); the log is `base_offsets` then. returned:
    files to remove before all others. complete: segments with both indexes; others' are made again. transactional:
    segments with a transaction index. deleted: base offsets, rising, of segments that wait for their removal."""

    returned: tuple[str, ...]
    removals: tuple[str, ...]
    renames: tuple[tuple[str, str], ...]
    base_offsets: tuple[int, ...]
    snapshots: tuple[int, ...]
    complete: frozenset[int]
    transactional: frozenset[int]
    deleted: tuple[int, ...]


def plan_startup(
    listing: Iterable[str], next_offset: Callable[[str], int], *, completes_retention: bool = False
) -> StartupFiles:
    """Plan for the listing of a partition directory.

    Args:
        next_offset: As in `names.live_segments`.
        completes_retention: The log is not compacted and was not shut down cleanly. Then an older segment below one
            that is named `.deleted` is removed, too: retention has renamed both, and a power cut has undone one rename.
    """
    listing = list(listing)
    live = names.live_segments(listing, next_offset)
    deleted = tuple(sorted(
        file.base_offset
        for file in map(names.parse_segment_file, listing)
        if file is not None and (file.suffix, file.transient_suffix) == (names.LOG_SUFFIX, names.DELETED_SUFFIX)
    ))  # fmt: skip
    returned = live[: _count_below_deleted(live, deleted, next_offset)] if completes_retention else []
    live = live[len(returned) :]
    kept = _file_names(live)
    swapped = [name for name in kept if name.endswith(names.SWAP_SUFFIX)]

    def log_first(name: str) -> tuple[str, bool]:
        """A .log takes its .swap indexes until they lose the suffix, too; the other way round they would be orphans."""
        base_offset, _, suffixes = name.partition(".")
        return base_offset, not suffixes.startswith(names.LOG_SUFFIX[1:])

    removed: list[tuple[int, str]] = []
    first_removed = _file_names(returned)
    for name in listing:
        if name in kept or name in first_removed:
            continue
        file = names.parse_segment_file(name)
        if file is None:
            if name in UNFINISHED:
                removed.append((_removal_stage(name), name))
            continue
        if file.suffix == names.PRODUCER_SNAPSHOT_SUFFIX and file.transient_suffix is None:
            continue
        removed.append((_removal_stage(name), name))
    return StartupFiles(
        tuple(sorted(first_removed)),
        tuple(name for _, name in sorted(removed)),
        tuple((name, name.removesuffix(names.SWAP_SUFFIX)) for name in sorted(swapped, key=log_first)),
        tuple(segment.base_offset for segment in live),
        tuple(offset for offset, _ in names.producer_snapshots(listing)),
        frozenset(segment.base_offset for segment in live if segment.offset_index and segment.time_index),
        frozenset(segment.base_offset for segment in live if segment.transaction_index),
        deleted,
    )


def _file_names(segments: Iterable[names.SegmentFiles]) -> set[str]:
    return {
        name
        for segment in segments
        for name in (segment.log, segment.offset_index, segment.time_index, segment.transaction_index)
        if name is not None
    }


def _count_below_deleted(
    live: Sequence[names.SegmentFiles], deleted: Sequence[int], next_offset: Callable[[str], int]
) -> int:
    """Return the number of segments before the last gap in which retention has renamed a segment `.deleted`.

    A truncation leaves `.deleted` files, too. They are no gap: the log goes on above them in an older segment.
    """
    for slot in range(len(live) - 1, 0, -1):
        before = live[slot - 1]
        between = [base for base in deleted if before.base_offset < base < live[slot].base_offset]
        if between and next_offset(before.log) <= between[0]:
            return slot
    return 0


def _removal_stage(name: str) -> int:
    """`.swap` files are removed first and `.cleaned` files last."""
    return 0 if name.endswith(names.SWAP_SUFFIX) else 2 if name.endswith(names.CLEANED_SUFFIX) else 1


def tidy(directory: Path, *, completes_retention: bool = False) -> StartupFiles:
    """Make a partition directory hold its log only; what was done. Raises OSError."""
    plan = plan_startup(
        os.listdir(directory),
        lambda name: next_offset_of(directory / name),
        completes_retention=completes_retention,
    )
    for name in plan.returned:
        (directory / name).unlink()
    if plan.returned:  # while the `.deleted` files show where the log begins
        fsync_directory(directory)
    for stage, removed in groupby(plan.removals, _removal_stage):
        if stage > _removal_stage(plan.removals[0]):
            fsync_directory(directory)
        for name in removed:
            (directory / name).unlink()
    if plan.removals and plan.renames:
        fsync_directory(directory)
    for old, new in plan.renames:
        os.rename(directory / old, directory / new)
    return plan


def next_offset_of(path: Path) -> int:
    """The offset after the last whole batch in a .log file; its base offset when there is none. Reads all headers."""
    file_name = names.parse_segment_file(path.name)
    assert file_name is not None
    next_offset = file_name.base_offset
    with descriptor(path) as fd:
        try:
            for header in headers_from(fd, 0, os.fstat(fd).st_size):
                next_offset = header.last_offset + 1
        except (CorruptBatch, UnsupportedFormat):
            pass  # recovery will say what it is; the log goes on up to here
    return next_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """Facts of a log that are known before its directory is read.

    Attributes:
        recovery_point: As checkpointed, 0 without a checkpoint.
        log_start_offset: As checkpointed, 0 without a checkpoint.
        has_remote_segments: The log may begin below its first local segment.
        is_compacted: Compaction may have left gaps between the segments.
        contiguous_from: Compaction has left no gap between two segments at or above this offset, so that a gap there
            shows that unflushed records were lost. None if that is not known.
        may_recover: False for a thread that has no time to read segments.
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
    """A log whose segments have to be read before it can be opened."""


def bytes_to_recover(directory: Path, recovery_point: int) -> int:
    """Bytes that `load_log` would scan after a crash."""
    files = log_files(directory)
    first = _floor(list(files), recovery_point)
    return sum(facts.st_size for base, facts in files.items() if base >= first)


def load_log(request: LoadRequest, on_bytes: Callable[[int], None] | None = None) -> LoadedLog:
    """Make the directory whole and say what it holds. on_bytes: called with the bytes that recovery has scanned. Raises
    CorruptLog for damage in a segment that was flushed and that nothing asks to cut, RecoveryNeeded without
    `may_recover`, OSError."""
    while True:
        try:
            return _Loader(request, on_bytes).load()
        except OffsetOverflow as overflow:
            bases = split_segment(request.directory, overflow.base_offset, request.index_interval_bytes)
            _log.warning("%s; it is split into the segments %s", overflow, ", ".join(map(str, bases)))


class _Loader:
    def __init__(self, request: LoadRequest, on_bytes: Callable[[int], None] | None) -> None:
        self._request = request
        self._directory = request.directory
        self._on_bytes = on_bytes
        may_complete = not (request.clean or request.is_compacted)
        self._files = files = tidy(request.directory, completes_retention=may_complete)
        self._bases, self._snapshots = list(files.base_offsets), list(files.snapshots)
        self._recovered: list[RecoveredSegment] = []
        self._new_snapshots: list[Path] = []
        self._epochs = LeaderEpochs(request.directory)
        self._producers = ProducerState()

    def load(self) -> LoadedLog:
        request, files = self._request, self._files
        recover_from = self._recover_from()
        # An index can always be made again; recovery does so for its segments.
        incomplete = [
            base for base in self._bases if base not in files.complete and (recover_from is None or base < recover_from)
        ]
        if not request.may_recover and (incomplete or recover_from is not None):
            raise RecoveryNeeded(
                "an index or a leader epoch checkpoint has to be made again", path=str(self._directory)
            )
        for base in incomplete:
            _log.warning("%s has not both indexes; they are made again", self._path(base, names.LOG_SUFFIX))
            recover_segment(self._directory, base, request.index_interval_bytes, may_cut=False, sync=True)
        if recover_from is not None:
            end = self._recover(recover_from)
        else:
            end = self._end_of_closed_log()
        first = self._bases[0] if self._bases and not request.has_remote_segments else 0
        start = max(request.log_start_offset, first)
        if not self._bases or end < start:
            end = self._start_over(start, end)
        # A leader that has not written yet has its epoch begin at the log end. Kafka drops such an entry here and gets
        # it from its controllers again; here the file is all that remembers it, unless its
        # batches were cut off just now.
        cut = any(segment.damage is not None for segment in self._recovered)
        self._epochs.truncate_from_end(end if cut else end + 1)
        self._epochs.truncate_from_start(start)
        if not (request.clean or request.has_remote_segments):
            self._find_epochs_below_first(start)
        self._epochs.flush()
        self._restore_producers(start, end)
        was_tidy = not (files.returned or files.removals or files.renames)
        return LoadedLog(
            directory=self._directory,
            base_offsets=self._bases,
            log_start_offset=start,
            log_end_offset=end,
            recovery_point=min(request.recovery_point, end) if self._recovered or not request.clean else end,
            epochs=self._epochs,
            producers=self._producers,
            recovered=self._recovered,
            is_synced=request.clean and was_tidy and not (self._recovered or self._new_snapshots),
            unsynced_snapshots=self._new_snapshots if request.clean else (),
        )

    # ---- what has to be recovered

    def _recover_from(self) -> int | None:
        """Base offset of the first segment that is to be checked; None when all can be believed."""
        found: list[int] = []
        if not self._request.clean and self._bases:
            first = _floor(self._bases, self._request.recovery_point)
            before = max((base for base in self._bases if base < first), default=first)
            found.append(before if self._has_padded_index(before) else first)
        try:
            self._epochs = LeaderEpochs.read(self._directory)
        except (CorruptFile, UnsupportedFormat) as error:
            _log.warning("%s; leader epochs are taken from the log again", error)
            found.append(_floor(self._bases, 0))
        for base in sorted(self._files.transactional):
            try:
                load_transaction_index(self._path(base, names.TRANSACTION_INDEX_SUFFIX), base)
            except (CorruptLog, UnsupportedFormat) as error:
                _log.warning("%s; the segment is recovered", error)
                found.append(base)
                break
        return min(found) if found and self._bases else None

    def _has_padded_index(self, base: int) -> bool:
        """True if zeros follow the entries of an index, as only in a segment that is being written.

        A clean stop puts the active segment on disk and the recovery point at its end. The next start grows its indexes
        again, and a roll trims them. If power fails before the flush that follows the roll, the segment lies below the
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
                continue  # made again by `load`
            if size and not any(last):
                return True
        return False

    # ---- the end of the log

    def _recover(self, first: int) -> int:
        """Check the segments from `first` on; the log end offset."""
        self._load_producers_at(first)
        end = first
        for slot in range(self._bases.index(first), len(self._bases)):
            base = self._bases[slot]
            aborted: list[AbortedTransaction] = []

            def on_window(window: Window, aborted: list[AbortedTransaction] = aborted) -> None:
                aborted += replay(self._producers, window)
                self._assign_epochs(window)

            behind = self._bases[slot + 1 :]
            segment = recover_segment(
                self._directory, base, self._request.index_interval_bytes, on_window, self._on_bytes,
                first_bad=first_bad_marker, before_cut=partial(self._remove_behind_cut, behind),
            )  # fmt: skip
            if aborted:
                data = b"".join(map(format_transaction, aborted))
                replace_bytes(self._path(base, names.TRANSACTION_INDEX_SUFFIX), data)
            elif base in self._files.transactional:
                self._path(base, names.TRANSACTION_INDEX_SUFFIX).unlink(missing_ok=True)
            self._recovered.append(segment)
            end = segment.next_offset
            if segment.damage is not None:
                _log.warning("%s; %d bytes are cut off", segment.damage, segment.truncated_bytes)
                del self._bases[slot + 1 :]
                break
            if behind and self._is_hole(end, behind[0]):
                _log.warning(
                    "%s ends at offset %d, the next segment begins at %d: unflushed records between them were lost",
                    self._path(base, names.LOG_SUFFIX), end, behind[0],
                )  # fmt: skip
                self._remove_behind_cut(behind)
                del self._bases[slot + 1 :]
                break
            if behind:
                self._snapshot(behind[0])
        return end

    def _is_hole(self, end: int, next_base: int) -> bool:
        """True if records between two segments were lost in a power cut.

        A new segment may reach the disk before the end of the one that was rolled. What follows the gap is not kept,
        so that the log stays a prefix of what was appended, and an idempotent producer cannot append twice. A gap that
        retention has left, or compaction, is not a hole.
        """
        contiguous_from = self._request.contiguous_from
        if contiguous_from is None or not max(end, contiguous_from) < next_base:
            return False
        return not any(end <= deleted < next_base for deleted in self._files.deleted)

    def _remove_behind_cut(self, bases: Sequence[int]) -> None:
        """Remove the segments behind a cut before it is made: if one of them came back after a power cut, while the cut
        stayed, it would follow a gap."""
        for base in bases:
            _log.warning("%s follows the cut and is removed", self._path(base, names.LOG_SUFFIX))
            self._remove_segment(base)
        if bases:
            fsync_directory(self._directory)

    def _assign_epochs(self, window: Window) -> None:
        epochs = window.table[:, H.LEADER_EPOCH]
        while (epochs > self._epochs.latest).any():
            row = int((epochs > self._epochs.latest).argmax())
            self._epochs.assign(int(epochs[row]), int(window.table[row, H.BASE_OFFSET]))

    def _find_epochs_below_first(self, start: int) -> None:
        """Add the epochs of records that were deleted, but came back after a crash.

        DeleteRecords and retention truncate the leader epochs before the new log start offset is checkpointed.
        """
        entries = self._epochs.entries
        if not entries or entries[0].start_offset <= start:
            return
        first = entries[0].start_offset
        found: list[EpochEntry] = []
        for base in self._bases:
            if base >= first:
                break
            path = self._path(base, names.LOG_SUFFIX)
            with descriptor(path) as fd:
                for header in headers_from(fd, 0, os.fstat(fd).st_size):
                    if header.base_offset >= first:
                        break
                    if header.leader_epoch < 0 or (found and header.leader_epoch < found[-1].epoch):
                        return  # written by a broker without leader epochs
                    if header.last_offset >= start and (not found or header.leader_epoch > found[-1].epoch):
                        found.append(EpochEntry(header.leader_epoch, max(header.base_offset, start)))
        if found:
            self._epochs.replace([*found, *(entry for entry in entries if entry.epoch > found[-1].epoch)])

    def _end_of_closed_log(self) -> int:
        """The log end offset, from headers after the last index entry; recovers the segment when the index misleads."""
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
                _log.warning("%s; the segment is recovered", error.at(path=str(path)))
        return self._recover(base)

    def _start_over(self, start: int, end: int) -> int:
        """Make an empty log at `start`: there was none, or it ends before its log start offset. The first append
        assigns a leader epoch again."""
        if self._bases:
            _log.warning(
                "%s ends at offset %d, before its log start offset %d; its segments are removed and it begins there",
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

    # ---- producer state

    def _restore_producers(self, start: int, end: int) -> None:
        """Bring producer state to the log's end, and leave the snapshots that belong to it."""
        if not self._recovered:
            self._load_producers_at(end)
        for offset in [offset for offset in self._snapshots if offset > end]:
            self._remove_snapshot(offset)
        aligned = set(self._bases)
        strays = [offset for offset in self._snapshots if offset not in aligned]
        for offset in strays[:-1]:  # as removeStraySnapshots: the newest one may be that of the last close
            self._remove_snapshot(offset)
        self._producers.end_offset = end
        self._producers.on_log_start_offset(start)
        self._producers.expire(self._request.now_ms, self._request.producer_id_expiration_ms)
        if self._recovered:
            self._snapshot(end)

    def _load_producers_at(self, offset: int) -> None:
        """State at `offset`, a segment's base or the log end: the newest good snapshot, and the batches after it."""
        had_snapshots = bool(self._snapshots)
        # Of producers in a snapshot below the first segment nobody knows what they wrote between: the sequence that
        # they go on with would be refused. A producer that is not known may begin with any.
        for known in [known for known in self._snapshots if known < min(self._bases, default=0)]:
            path = self._path(known, names.PRODUCER_SNAPSHOT_SUFFIX)
            _log.warning("%s is removed: the log begins at %d, and what came between is gone", path, self._bases[0])
            self._remove_snapshot(known)
        state, damaged = newest_snapshot(self._directory, [known for known in self._snapshots if known <= offset])
        for known in damaged:
            self._remove_snapshot(known)
        self._producers = state or ProducerState(offset)
        # A log without snapshots that was closed cleanly has no producers: Kafka does not scan it either. One whose
        # snapshots are all damaged may have open transactions, whose records nobody may see.
        if state is None and not had_snapshots and self._request.clean:
            for known in (*self._bases[-2:], offset):  # nor does the next start after a crash (rebuildProducerState)
                self._snapshot(known)
            return
        since = state.end_offset if state is not None else min(self._bases, default=offset)
        try:
            if since < offset:
                segments = [(base, None) for base in self._bases if base < offset]
                replay_segments(self._producers, self._directory, segments, since)
        except (CorruptBatch, UnsupportedFormat) as error:  # damage in a flushed segment is not cut off here
            _log.warning("%s; producers are known only up to there", error)

    def _snapshot(self, offset: int) -> None:
        if offset <= max(self._request.log_start_offset, *self._bases[:1]):
            return
        path = self._path(offset, names.PRODUCER_SNAPSHOT_SUFFIX)
        # After a clean stop the event loop opens the log, and must not wait for the disk: the next flush does.
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


class LoadProgress(NamedTuple):
    """Progress of all threads together. Bytes: of the segments that recovery has to scan."""

    logs_done: int
    logs_total: int
    bytes_done: int
    bytes_total: int

    @property
    def percent(self) -> int:
        """Share of the bytes; of the logs where there is nothing to scan."""
        done, total = (self.bytes_done, self.bytes_total) if self.bytes_total else (self.logs_done, self.logs_total)
        # A log that is cut has bytes that are never scanned, and one that grew while it was listed has more.
        return min(100 * done // total, 100) if total else 100

    def __str__(self) -> str:
        return (
            f"{self.percent} %, {self.bytes_done / 1e6:.0f} of {self.bytes_total / 1e6:.0f} MB, "
            f"{self.logs_done} of {self.logs_total} logs"
        )


class ProgressWatch:
    """progress: called after each window of bytes and each log, by one thread at a time."""

    def __init__(self, logs: int, size: int, progress: Callable[[LoadProgress], None]) -> None:
        self._guard = threading.Lock()
        self._state = LoadProgress(0, logs, 0, size)
        self._progress = progress

    def bytes_done(self, count: int) -> None:
        with self._guard:
            self._state = self._state._replace(bytes_done=self._state.bytes_done + count)
            self._progress(self._state)

    def log_done(self) -> None:
        with self._guard:
            self._state = self._state._replace(logs_done=self._state.logs_done + 1)
            self._progress(self._state)
