"""Repair of one segment: undamaged batches are copied byte for byte, and the indexes are rebuilt."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format import layout, names
from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.format.control_record import control_type
from kafkalog_spark.format.layout import NO_LEADER_EPOCH, NO_TIMESTAMP, HeaderColumn
from kafkalog_spark.format.regular_file import write_all
from kafkalog_spark.format.transaction_index import format_transaction
from kafkalog_spark.log.read.header_windows import Table
from kafkalog_spark.log.read.last_stable_offset import TransactionState
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.repair.damaged_segment import Damage
from kafkalog_spark.log.repair.judged_segment import FindBadRecords, end_of, judge_batches
from kafkalog_spark.log.repair.lost_keys import lost_keys
from kafkalog_spark.log.repair.report import Loss, PartitionReport, key_text
from kafkalog_spark.log.write.segment_recovery import IndexBuilder
from kafkalog_spark.log.write.segment_roll import INDEX_INTERVAL_BYTES

_COPY = 8 << 20  # bytes that are copied at a time
_OF_TRANSACTIONS = layout.ATTRIBUTE_TRANSACTIONAL | layout.ATTRIBUTE_CONTROL


@dataclass(slots=True)
class RepairState:
    """State of a partition's repair, which each segment continues.

    Attributes:
        last_offset: Last offset of the last kept batch.
        transactions: Transactions of the kept batches.
        known_epochs: Start offsets by leader epoch in the source's checkpoint. An epoch may begin before its first
            remaining batch.
        log_start: Log start offset of the source; records below it were deleted.
        leader_epoch: Leader epoch of the last kept batch.
        epochs: New leader-epoch checkpoint.
        timestamp: Max timestamp of the last kept batch, in ms.
        pending: Losses of the current segment after which no batch has been kept yet.
    """

    last_offset: int
    transactions: TransactionState
    known_epochs: Mapping[int, int]
    log_start: int
    leader_epoch: int = NO_LEADER_EPOCH
    epochs: list[EpochEntry] = field(default_factory=list)
    timestamp: int = NO_TIMESTAMP
    pending: list[Loss] = field(default_factory=list)


class SegmentRepair:
    """Writes a segment to `directory`: the undamaged batches of a file, or of parts of several files.

    Call `finish` after the last `add`.
    """

    def __init__(self, base_offset: int, directory: Path, log: RepairState, report: PartitionReport) -> None:
        self._log = log
        self._report = report
        self._path = directory / (names.segment_name(base_offset) + names.LOG_SUFFIX)
        self._indexes = IndexBuilder(base_offset, INDEX_INTERVAL_BYTES)
        self._aborts_before = len(log.transactions.aborted)
        self.base_offset = base_offset
        self.size = 0
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)

    def add(self, file: SegmentFile, recovery_point: int | None, bad_records: FindBadRecords | None = None) -> None:
        """Append the undamaged batches of a file, and report the others as lost.

        Raises:
            NotALogDirectory: If the file cannot be read.
            OSError: If the destination cannot be written.
        """
        self._report.bytes_before += file.size - file.begin
        log = self._log
        for part in judge_batches(file, log.last_offset, log.leader_epoch, recovery_point, bad_records):
            if not isinstance(part, Damage):
                self._copy(file, part.table, part.epochs)
                continue
            keys, records = lost_keys(file, part.position, part.size)
            shown, before = tuple(map(key_text, keys)), None if log.timestamp == NO_TIMESTAMP else log.timestamp
            first_lost = log.last_offset + 1
            log.pending.append(
                Loss(
                    file.path, part.position, part.size, part.error, first_lost, None, before, keys=shown,
                    keys_read=records,
                )
            )  # fmt: skip

    def finish(self, *, keep_empty: bool) -> None:
        """Write the indexes. A segment without batches is removed, unless `keep_empty`."""
        os.close(self._fd)
        self._report.losses += self._log.pending
        self._log.pending.clear()
        self._report.bytes_kept += self.size
        if not self.size and not keep_empty:
            self._path.unlink()
            return
        offsets, times = self._indexes.finished()
        self._path.with_suffix(names.OFFSET_INDEX_SUFFIX).write_bytes(offsets)
        self._path.with_suffix(names.TIME_INDEX_SUFFIX).write_bytes(times)
        aborted = self._log.transactions.aborted[self._aborts_before :]
        if aborted:
            entries = b"".join(format_transaction(entry) for entry in aborted)
            self._path.with_suffix(names.TRANSACTION_INDEX_SUFFIX).write_bytes(entries)

    def _copy(self, file: SegmentFile, run: Table, epochs: np.ndarray) -> None:
        """Copy batches that are adjacent in the file, and give them the leader epochs `epochs`, int64[n]."""
        start, end = int(run[0, HeaderColumn.POSITION]), end_of(run[-1])
        moved = run.copy()
        moved[:, HeaderColumn.POSITION] += self.size - start
        position = start
        while position < end:
            piece = file.read(position, min(_COPY, end - position))
            if not piece:
                raise FileNotFoundError(errno.ENOENT, "the file became shorter while it was read", file.path)
            write_all(self._fd, piece)
            position += len(piece)
        for row in np.flatnonzero(
            (epochs != run[:, HeaderColumn.LEADER_EPOCH]) & (run[:, HeaderColumn.MAGIC] == 2)
        ).tolist():
            at = int(moved[row, HeaderColumn.POSITION]) + layout.LEADER_EPOCH_AT
            os.pwrite(self._fd, int(epochs[row]).to_bytes(4, "big", signed=True), at)
            self._report.epochs_rewritten += 1
        self.size += end - start
        self._indexes.add(moved)
        self._report.batches += len(run)
        self._update_state(file, run, epochs)

    def _update_state(self, file: SegmentFile, run: Table, epochs: np.ndarray) -> None:
        """Update the RepairState after copied batches, and complete the pending losses."""
        log = self._log
        first, timestamp = int(run[0, HeaderColumn.BASE_OFFSET]), int(run[0, HeaderColumn.MAX_TIMESTAMP])
        after = None if timestamp == NO_TIMESTAMP else timestamp
        self._report.losses += [replace(loss, next_offset=first, timestamp_after=after) for loss in log.pending]
        log.pending.clear()
        changes = np.flatnonzero(np.diff(np.concatenate(([log.leader_epoch], epochs))) > 0)
        ends = [log.last_offset, *run[:, HeaderColumn.LAST_OFFSET].tolist()]
        for row in changes.tolist():
            epoch, start = int(epochs[row]), int(run[row, HeaderColumn.BASE_OFFSET])
            known = log.known_epochs.get(epoch, start)
            fits = ends[row] < known <= max(start, log.log_start)
            log.epochs.append(EpochEntry(epoch, known if fits else start))
        log.leader_epoch = int(epochs[-1])
        log.last_offset = int(run[-1, HeaderColumn.LAST_OFFSET])
        log.timestamp = int(run[-1, HeaderColumn.MAX_TIMESTAMP])
        flags = run[:, HeaderColumn.ATTRIBUTES] & _OF_TRANSACTIONS
        for row in np.flatnonzero(
            (flags != 0) & (run[:, HeaderColumn.MAGIC] == 2) & (run[:, HeaderColumn.COUNT] > 0)
        ).tolist():
            header = file.header_at(int(run[row, HeaderColumn.POSITION]))
            assert header is not None
            if not header.is_control:
                log.transactions.data_batch(header)
                continue
            try:
                log.transactions.marker(header, control_type(file.read(header.position, header.size)))
            except CorruptBatch:
                continue  # a malformed marker, which the check reports, ends no transaction
