"""Repairs one segment: copies undamaged batches byte for byte, and rebuilds the indexes."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format import layout, names
from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.format.control_record import control_type
from kafkalog_spark.format.layout import NO_LEADER_EPOCH, NO_TIMESTAMP, HeaderColumn
from kafkalog_spark.format.regular_file import write_all
from kafkalog_spark.format.transaction_index import format_transaction
from kafkalog_spark.log.read.header_windows import HeaderTable, batch_end
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.transaction_state import TransactionState
from kafkalog_spark.log.repair.batch_verdicts import FindBadRecords, KeptBatches, judge_batches
from kafkalog_spark.log.repair.damaged_segment import Damage
from kafkalog_spark.log.repair.lost_keys import read_lost_keys
from kafkalog_spark.log.repair.report import Loss, PartitionReport, key_text
from kafkalog_spark.log.write.index_builder import IndexBuilder
from kafkalog_spark.log.write.segment_roll import INDEX_INTERVAL_BYTES

_COPY_BYTES = 8 << 20  # bytes that are copied at a time
_TRANSACTION_FLAGS = layout.ATTRIBUTE_TRANSACTIONAL | layout.ATTRIBUTE_CONTROL


@dataclass(slots=True)
class RepairState:
    """State of a partition's repair, passed from segment to segment.

    Attributes:
        last_offset: Last offset of the last kept batch.
        transactions: Transactions of the kept batches.
        known_epochs: Start offsets by leader epoch in the source's checkpoint. An epoch may begin before its first
            remaining batch.
        log_start_offset: Log start offset of the source; records below it were deleted.
        leader_epoch: Leader epoch of the last kept batch.
        epochs: New leader-epoch checkpoint.
        timestamp: Max timestamp of the last kept batch, in ms.
        pending: Losses in the current segment that are not yet followed by a kept batch.
    """

    last_offset: int
    transactions: TransactionState
    known_epochs: Mapping[int, int]
    log_start_offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    epochs: list[EpochEntry] = field(default_factory=list)
    timestamp: int = NO_TIMESTAMP
    pending: list[Loss] = field(default_factory=list)


class SegmentRepair:
    """Writes a segment to `directory`: the undamaged batches of a file, or of parts of several files.

    Call `finish` after the last `add`.

    Attributes:
        base_offset: Base offset of the segment.
        size: Bytes of the .log file so far.
    """

    def __init__(self, base_offset: int, directory: Path, state: RepairState, report: PartitionReport) -> None:
        self._state = state
        self._report = report
        self._path = directory / (names.segment_name(base_offset) + names.LOG_SUFFIX)
        self._indexes = IndexBuilder(base_offset, INDEX_INTERVAL_BYTES)
        self._aborts_before = len(state.transactions.aborted)
        self.base_offset = base_offset
        self.size = 0
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)

    def add(
        self, file: SegmentFile, recovery_point: int | None, find_bad_records: FindBadRecords | None = None
    ) -> None:
        """Append the undamaged batches of a file, and report the others as lost.

        Args:
            file: The file, or a part of it.
            recovery_point: See `windows_and_damage`.
            find_bad_records: See `judge_batches`.

        Raises:
            NotALogDirectory: If the file cannot be read.
            OSError: If the destination cannot be written.
        """
        self._report.bytes_before += file.size - file.begin
        state = self._state
        for part in judge_batches(file, state.last_offset, state.leader_epoch, recovery_point, find_bad_records):
            if not isinstance(part, Damage):
                self._copy_batches(file, part)
                continue
            lost = read_lost_keys(file, part.position, part.size)
            loss = Loss(
                file.path,
                part.position,
                part.size,
                part.error,
                first_offset=state.last_offset + 1,
                next_offset=None,
                timestamp_before=None if state.timestamp == NO_TIMESTAMP else state.timestamp,
                keys=tuple(map(key_text, lost.keys)),
                keys_read=lost.records,
            )
            state.pending.append(loss)

    def finish(self, *, keep_empty: bool) -> None:
        """Write the indexes. A segment without batches is removed, unless `keep_empty`."""
        os.close(self._fd)
        self._report.losses += self._state.pending
        self._state.pending.clear()
        self._report.bytes_kept += self.size
        if not self.size and not keep_empty:
            self._path.unlink()
            return
        offsets, times = self._indexes.build()
        self._path.with_suffix(names.OFFSET_INDEX_SUFFIX).write_bytes(offsets)
        self._path.with_suffix(names.TIME_INDEX_SUFFIX).write_bytes(times)
        aborted = self._state.transactions.aborted[self._aborts_before :]
        if aborted:
            entries = b"".join(format_transaction(transaction) for transaction in aborted)
            self._path.with_suffix(names.TRANSACTION_INDEX_SUFFIX).write_bytes(entries)

    def _copy_batches(self, file: SegmentFile, batches: KeptBatches) -> None:
        """Copy batches byte for byte except for corrected leader epochs, which the CRC does not cover."""
        table, epochs = batches
        start, end = int(table[0, HeaderColumn.POSITION]), batch_end(table[-1])
        copied = table.copy()  # with positions in the new file
        copied[:, HeaderColumn.POSITION] += self.size - start
        position = start
        while position < end:
            piece = file.read(position, min(_COPY_BYTES, end - position))
            if not piece:
                raise FileNotFoundError(errno.ENOENT, "the file became shorter while it was read", file.path)
            write_all(self._fd, piece)
            position += len(piece)
        has_new_epoch = (epochs != table[:, HeaderColumn.LEADER_EPOCH]) & (table[:, HeaderColumn.MAGIC] == 2)
        for row in np.flatnonzero(has_new_epoch).tolist():
            epoch_at = int(copied[row, HeaderColumn.POSITION]) + layout.LEADER_EPOCH_AT
            os.pwrite(self._fd, int(epochs[row]).to_bytes(4, "big", signed=True), epoch_at)
            self._report.epochs_rewritten += 1
        self.size += end - start
        self._indexes.add(copied)
        self._report.batches += len(table)
        self._complete_losses(table)
        self._add_epochs(table, epochs)
        self._add_transactions(file, table)
        self._state.leader_epoch = int(epochs[-1])
        self._state.last_offset = int(table[-1, HeaderColumn.LAST_OFFSET])
        self._state.timestamp = int(table[-1, HeaderColumn.MAX_TIMESTAMP])

    def _complete_losses(self, table: HeaderTable) -> None:
        """Report the pending losses, with the offset and max timestamp of the first kept batch after them."""
        base_offset, timestamp = int(table[0, HeaderColumn.BASE_OFFSET]), int(table[0, HeaderColumn.MAX_TIMESTAMP])
        after = None if timestamp == NO_TIMESTAMP else timestamp
        losses = [replace(loss, next_offset=base_offset, timestamp_after=after) for loss in self._state.pending]
        self._report.losses += losses
        self._state.pending.clear()

    def _add_epochs(self, table: HeaderTable, epochs: npt.NDArray[np.int64]) -> None:
        """Add an entry to the leader-epoch checkpoint for each epoch that begins in `table`."""
        state = self._state
        previous_offsets = [state.last_offset, *table[:, HeaderColumn.LAST_OFFSET].tolist()]
        changes = np.flatnonzero(np.diff(np.concatenate(([state.leader_epoch], epochs))) > 0)
        for row in changes.tolist():
            epoch, base_offset = int(epochs[row]), int(table[row, HeaderColumn.BASE_OFFSET])
            start = state.known_epochs.get(epoch, base_offset)
            if not previous_offsets[row] < start <= max(base_offset, state.log_start_offset):
                start = base_offset  # the source's checkpoint contradicts the batches
            state.epochs.append(EpochEntry(epoch, start))

    def _add_transactions(self, file: SegmentFile, table: HeaderTable) -> None:
        """Add the transactional batches and markers of `table`, whose positions are those in `file`."""
        transactions = self._state.transactions
        flags = table[:, HeaderColumn.ATTRIBUTES] & _TRANSACTION_FLAGS
        has_records = (table[:, HeaderColumn.MAGIC] == 2) & (table[:, HeaderColumn.COUNT] > 0)
        for row in np.flatnonzero((flags != 0) & has_records).tolist():
            header = file.header_at(int(table[row, HeaderColumn.POSITION]))
            assert header is not None
            if not header.is_control:
                transactions.add_data_batch(header)
                continue
            try:
                transactions.add_marker(header, control_type(file.read(header.position, header.size)))
            except CorruptBatch:
                continue  # a malformed marker, which kafkalog-check reports, ends no transaction
