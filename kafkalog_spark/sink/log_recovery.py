"""Recovery of a partition's log before a sink appends to it, so that the whole log is valid and on disk.

Kafka: LogLoader. The sink raises the recovery point above all present records. Therefore the files below it must not
depend on a later flush or recovery: a broker flushes the indexes of its active segment only when it stops cleanly, and
a broker that was killed leaves segments, indexes, transaction indexes and directory entries in the page cache only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np

from kafkalog_spark import errors
from kafkalog_spark.format import checkpoint, layout, names
from kafkalog_spark.format.atomic_file import replace_file
from kafkalog_spark.format.checkpoint import LEADER_EPOCH_CHECKPOINT, EpochEntry
from kafkalog_spark.format.control_record import transaction_end
from kafkalog_spark.format.fsync import fsync_directory, fsync_file
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.format.offset_index import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from kafkalog_spark.format.offset_index import load_offset_index
from kafkalog_spark.format.partition_metadata import PARTITION_METADATA_FILE
from kafkalog_spark.format.regular_file import descriptor
from kafkalog_spark.format.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from kafkalog_spark.format.time_index import load_time_index
from kafkalog_spark.format.transaction_index import format_transaction
from kafkalog_spark.log.read.header_windows import HeaderTable, Window
from kafkalog_spark.log.read.last_stable_offset import TransactionState, open_transactions_at
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.write.header_reader import header_at
from kafkalog_spark.log.write.segment_recovery import recover_segment

_LET_A_BROKER = "let a broker recover the directory, or restore the segment from a backup"


def recover_log(log: PartitionLog, *, clean: bool) -> list[EpochEntry]:
    """Repair the log, flush all its files and their directory entries, and return its leader epochs.

    After a clean shutdown only the last segment is examined. Otherwise the segments from the recovery point on are
    recovered as a broker recovers them: every batch is checked, and indexes, transaction indexes and leader epochs are
    written again. A torn batch at the end of the last segment is truncated.

    Args:
        log: The log, opened without `pass_over_damage`. No broker and no other sink has its directory.
        clean: True if the log directory has the marker of a clean shutdown.

    Raises:
        CorruptLog: For any other damage than a torn batch at the end. No segment was truncated.
        OffsetOverflow: For a segment that a broker has to split.
        OSError: If a file cannot be read, written or flushed.
    """
    epochs, are_complete = _leader_epochs(log)
    first: int | None = None
    if log.segments:
        first = _first_to_recover(log, clean=clean, epochs_are_complete=are_complete)
        if first is not None:
            epochs = _recover_segments(log, first, epochs)
    _put_on_disk(log, first)
    return epochs


def is_closed(log: PartitionLog) -> bool:
    """Return True if the last segment ends with a whole batch and both its indexes have no padding.

    A roll or a clean stop leaves such a segment. The indexes of a broker's active segment are padded with zeros.
    """
    base_offset = log.segments[-1].base_offset
    path = Path(log.directory, log.segments[-1].log)
    try:
        if path.stat().st_size != log.log_end.position:
            return False
        offset_size = path.with_suffix(names.OFFSET_INDEX_SUFFIX).stat().st_size
        time_size = path.with_suffix(names.TIME_INDEX_SUFFIX).stat().st_size
    except FileNotFoundError:
        return False
    offsets = load_offset_index(path.with_suffix(names.OFFSET_INDEX_SUFFIX), base_offset)
    times = load_time_index(path.with_suffix(names.TIME_INDEX_SUFFIX), base_offset)
    no_padding = len(offsets) * OFFSET_ENTRY_SIZE == offset_size and len(times) * TIME_ENTRY_SIZE == time_size
    return no_padding and (time_size > 0 or log.log_end.position == 0)


def _leader_epochs(log: PartitionLog) -> tuple[list[EpochEntry], bool]:
    """Return the entries of the checkpoint, and True if they include the epoch of the log's last batch.

    If the file was written without an fsync, a crash of the machine may leave it empty or older than the log.
    """
    path = Path(log.directory, LEADER_EPOCH_CHECKPOINT)
    try:
        epochs = checkpoint.read_leader_epochs(path)
    except (errors.CorruptFile, errors.UnsupportedFormat):
        return [], False
    end = log.log_end
    if end.last_batch < 0:
        return epochs, True
    with descriptor(Path(log.directory, log.segments[-1].log)) as fd:
        last = header_at(fd, end.last_batch, end.position)
    latest = epochs[-1].epoch if epochs else layout.NO_LEADER_EPOCH
    return epochs, last.magic < 2 or last.leader_epoch <= latest


def _first_to_recover(log: PartitionLog, *, clean: bool, epochs_are_complete: bool) -> int | None:
    """Return the index of the first segment to recover; None if all files can be trusted."""
    last = len(log.segments) - 1
    if not epochs_are_complete:
        return 0
    if not clean:
        return min(log.segment_index(log.recovery_point or 0), last)
    return None if is_closed(log) else last


def _recover_segments(log: PartitionLog, first: int, epochs: Iterable[EpochEntry]) -> list[EpochEntry]:
    """Recover the segments from index `first` on; return the log's leader epochs."""
    directory, end = Path(log.directory), log.log_end
    last = len(log.segments) - 1
    path = Path(log.directory, log.segments[last].log)
    base_offset = log.segments[first].base_offset
    replay = _Replay(TransactionState(open_transactions_at(log, base_offset)), list(epochs))
    for index in range(first, last + 1):
        base_offset, count = log.segments[index].base_offset, len(replay.transactions.aborted)
        if index == last and path.stat().st_size > end.position:
            os.truncate(path, end.position)  # before the indexes are written: `end` was proven to be a torn tail
        try:
            recovered = recover_segment(
                directory, base_offset, on_window=replay.add, find_bad_batch=_bad_marker, may_truncate=False, sync=True
            )
        except errors.KafkalogError as error:
            error.hint = error.hint or _LET_A_BROKER
            raise error.at(path=log.segment_path(index)) from None
        _check_no_gap(log, index, recovered.next_offset)
        aborted = replay.transactions.aborted[count:]
        transaction_index = directory / (names.segment_name(base_offset) + names.TRANSACTION_INDEX_SUFFIX)
        if aborted:
            replace_file(transaction_index, b"".join(map(format_transaction, aborted)))
        else:
            transaction_index.unlink(missing_ok=True)
    if end.position and recovered.next_offset != end.offset:
        raise errors.CorruptLog(
            f"the log ends at offset {end.offset}, but recovery of its last segment at {recovered.next_offset}",
            path=str(path),
            hint=_LET_A_BROKER,
        )
    if replay.has_new_epochs:
        checkpoint.write_leader_epochs(directory / LEADER_EPOCH_CHECKPOINT, replay.epochs)
    return replay.epochs


def _check_no_gap(log: PartitionLog, index: int, next_offset: int) -> None:
    """Raise CorruptLog if offsets are missing after a segment because a crash of the machine has lost the next one.

    Compaction leaves gaps, too, but none above both the recovery point and the cleaner's offset. A broker truncates the
    log at the gap. A sink does not, because the records after the gap may be needed.
    """
    following = log.next_base_offset(index)
    if following is None or following <= next_offset or log.recovery_point is None:
        return
    cleaned = checkpoint.read_offset_checkpoint(Path(log.location.log_dir, checkpoint.CLEANER_OFFSET_CHECKPOINT))
    if following > max(log.recovery_point, cleaned.get((log.topic, log.partition), 0)):
        raise errors.CorruptLog(
            f"offsets {next_offset} to {following - 1} are missing: they were not flushed before a crash",
            path=log.segment_path(index + 1),
            hint="let a broker recover the directory: it truncates the log at this offset",
        )


def log_files(log: PartitionLog, first: int = -1) -> list[str]:
    """Return the names of the files that may need a flush if the segments before the last one are on disk.

    They are the files of the last segment, the producer snapshots from the base offset of segment `first` on, and the
    partition's checkpoint and metadata files. Some may not exist.
    """
    files = [LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA_FILE]
    base_offset = 0
    if log.segments:
        stem = names.segment_name(log.segments[-1].base_offset)
        files += [stem + suffix for suffix in names.SEGMENT_SUFFIXES]
        base_offset = log.segments[first].base_offset
    return files + [name for offset, name in names.producer_snapshots(log.names) if offset >= base_offset]


def _put_on_disk(log: PartitionLog, first_recovered: int | None) -> None:
    """Flush the log's files and the directory entries of all files.

    Segments before the last one need no flush: they were recovered, or are below the recovery point, or were flushed by
    a broker that stopped cleanly. The last segment may be below the recovery point although its indexes were never
    flushed. A lost producer snapshot would be written again from the log, but a snapshot file without its bytes counts
    as damage for kafkalog-check.
    """
    for name in log_files(log, -1 if first_recovered is None else first_recovered):
        with suppress(FileNotFoundError):
            fsync_file(Path(log.directory, name))
    fsync_directory(log.directory)


class _Replay:
    """State that recovery derives from the batches, in order: transactions and leader epochs."""

    def __init__(self, transactions: TransactionState, epochs: list[EpochEntry]) -> None:
        self.transactions = transactions
        self.epochs = epochs
        self.has_new_epochs = False

    def add(self, window: Window) -> None:
        """Add valid batches. `_bad_marker` has checked the markers among them."""
        table = window.table
        self._assign_epochs(table)
        is_transactional = (table[:, HeaderColumn.ATTRIBUTES] & layout.ATTRIBUTE_TRANSACTIONAL) != 0
        for row in np.flatnonzero(is_transactional & (table[:, HeaderColumn.MAGIC] == 2)).tolist():
            header = window.header(row)
            if not header.is_control:
                self.transactions.add_data_batch(header)
            elif header.record_count and (ended := transaction_end(window.batch(row))) is not None:
                self.transactions.add_marker(header, ended[0])

    def _assign_epochs(self, table: HeaderTable) -> None:
        """Add the epochs that rise above the latest known one, as `LeaderEpochFileCache.assign`."""
        latest = self.epochs[-1].epoch if self.epochs else layout.NO_LEADER_EPOCH
        epochs_of_batches = np.where(
            table[:, HeaderColumn.MAGIC] == 2, table[:, HeaderColumn.LEADER_EPOCH], layout.NO_LEADER_EPOCH
        )
        while len(rows := np.flatnonzero(epochs_of_batches > latest)):
            start_offset, latest = int(table[rows[0], HeaderColumn.BASE_OFFSET]), int(epochs_of_batches[rows[0]])
            kept = [entry for entry in self.epochs if entry.start_offset < start_offset]
            self.epochs = [*kept, EpochEntry(latest, start_offset)]
            self.has_new_epochs = True


def _bad_marker(window: Window) -> tuple[int, errors.KafkalogError] | None:
    """Return the row and the error of the first control batch with an unreadable record, as a broker's recovery."""
    table = window.table
    is_control = (table[:, HeaderColumn.ATTRIBUTES] & layout.ATTRIBUTE_CONTROL) != 0
    is_control &= (
        (table[:, HeaderColumn.MAGIC] == 2)
        & (table[:, HeaderColumn.PRODUCER_ID] >= 0)
        & (table[:, HeaderColumn.COUNT] > 0)
    )
    for row in np.flatnonzero(is_control).tolist():
        try:
            transaction_end(window.batch(row))
        except errors.CorruptBatch as error:
            return row, error.at(position=int(table[row, HeaderColumn.POSITION]))
    return None
