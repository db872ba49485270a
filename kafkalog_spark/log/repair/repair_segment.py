"""One segment: its good batches copied byte for byte, its indexes made anew."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.log.format import layout, names
from kafkalog_spark.log.format.control_record import control_type
from kafkalog_spark.log.format.durable import write_all
from kafkalog_spark.log.format.layout import NO_LEADER_EPOCH, NO_TIMESTAMP, H
from kafkalog_spark.log.format.transaction_index import format_transaction
from kafkalog_spark.log.read.header_windows import Table, Window
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.transactions import TransactionState
from kafkalog_spark.log.repair.kept_batches import fitting, true_epochs
from kafkalog_spark.log.repair.report import Loss, PartitionReport, known
from kafkalog_spark.log.tables.damage import Damage, stretches
from kafkalog_spark.log.write.rolling import INDEX_INTERVAL_BYTES
from kafkalog_spark.log.write.segment_recovery import IndexBuilder

_HELD_BACK = 64
"""Batches at the end of a window that are judged with those of the next: what follows shows which offset is wrong."""
_COPY = 8 << 20
_OF_TRANSACTIONS = layout.ATTRIBUTE_TRANSACTIONAL | layout.ATTRIBUTE_CONTROL
OUT_OF_LINE = "its offsets do not follow those of the batches around it"

FirstBad = Callable[[Window], Iterator[int]]
"""Positions of batches whose records cannot be read, of a window with all bytes."""


class EpochBegun(NamedTuple):
    """A leader epoch that begins at one of the offsets [after, first_batch]."""

    epoch: int
    after: int
    first_batch: int


@dataclass(slots=True)
class LogSoFar:
    """What the segments up to here leave to those after them."""

    last_offset: int
    transactions: TransactionState
    leader_epoch: int = NO_LEADER_EPOCH
    epochs: list[EpochBegun] = field(default_factory=list)
    timestamp: int = NO_TIMESTAMP
    pending: list[Loss] = field(default_factory=list)
    """Losses of this segment after which nothing has been kept yet."""


class SegmentRepair:
    """Writes what is good in `file` to `directory`. The caller closes it; nothing is kept of a segment without good
    batches but its name."""

    def __init__(self, file: SegmentFile, directory: Path, log: LogSoFar, report: PartitionReport) -> None:
        self._file = file
        self._log = log
        self._report = report
        self._path = directory / (names.segment_name(file.base_offset) + names.LOG_SUFFIX)
        self._indexes = IndexBuilder(file.base_offset, INDEX_INTERVAL_BYTES)
        self._size = 0
        self._held: Table | None = None
        self._damages: deque[tuple[int, int, str]] = deque()
        """Position, size, reason, of what is lost after the batches that have been judged."""

    def run(self, recovery_point: int | None, bad_records: FirstBad | None = None) -> bool:
        """Copy, and write the indexes; whether any batch was kept. Raises OSError, NotALogDirectory."""
        log, file = self._log, self._file
        self._report.bytes_before += file.size
        begun = len(log.transactions.aborted)
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            for found in stretches(file, 0, recovery_point):
                if isinstance(found, Damage):
                    self._damages.append((found.position, found.size, found.error))
                else:
                    self._take(fd, found, bad_records)
            self._settle(fd)
        finally:
            os.close(fd)
        self._report.losses += log.pending
        log.pending.clear()
        offsets, times = self._indexes.finished()
        self._path.with_suffix(names.OFFSET_INDEX_SUFFIX).write_bytes(offsets)
        self._path.with_suffix(names.TIME_INDEX_SUFFIX).write_bytes(times)
        aborted = log.transactions.aborted[begun:]
        if aborted:
            entries = b"".join(format_transaction(entry) for entry in aborted)
            self._path.with_suffix(names.TRANSACTION_INDEX_SUFFIX).write_bytes(entries)
        self._report.bytes_kept += self._size
        return bool(self._size)

    def _take(self, fd: int, window: Window, bad_records: FirstBad | None) -> None:
        table = window.table.copy()
        if bad_records is not None:
            bad = np.fromiter(bad_records(self._with_bytes(window)), np.int64)
            for row in np.flatnonzero(np.isin(table[:, H.POSITION], bad)).tolist():
                position, size = int(table[row, H.POSITION]), int(table[row, H.SIZE])
                self._damages.append((position, size, "its records cannot be read, under a valid CRC"))
            table = table[~np.isin(table[:, H.POSITION], bad)]
        held = table if self._held is None else np.concatenate((self._held, table))
        done = max(len(held) - _HELD_BACK, 0)
        keep = self._fitting(held)
        self._keep(fd, held[:done], keep[:done])
        self._held = held[done:]

    def _settle(self, fd: int) -> None:
        """No batch follows those that were held back."""
        if self._held is not None and len(self._held):
            self._keep(fd, self._held, self._fitting(self._held))
        self._held = None
        self._lose_up_to(layout.MAX_INT64)

    def _fitting(self, table: Table) -> np.ndarray:
        return fitting(table, self._file.base_offset, self._file.next_base_offset, self._log.last_offset)

    def _with_bytes(self, window: Window) -> Window:
        """The window with all bytes of its batches: of a large one it has the header only."""
        last = window.table[-1]
        needed = int(last[H.POSITION] + last[H.SIZE]) - window.start
        if len(window.data) >= needed:
            return window
        return Window(window.table, memoryview(self._file.read(window.start, needed)), window.start)

    def _keep(self, fd: int, table: Table, keep: np.ndarray) -> None:
        """Copy the batches that are kept, and report the others."""
        kept = table[keep]
        epochs = true_epochs(kept[:, H.LEADER_EPOCH], self._log.leader_epoch)
        given = iter(epochs.tolist())
        row = 0
        while row < len(table):
            end = row + 1
            self._lose_up_to(int(table[row, H.POSITION]))
            if not keep[row]:
                self._lose(int(table[row, H.POSITION]), int(table[row, H.SIZE]), OUT_OF_LINE)
            else:
                run = [next(given)]
                while end < len(table) and keep[end] and table[end, H.POSITION] == self._end(table[end - 1]):
                    run.append(next(given))
                    end += 1
                self._copy(fd, table[row:end], np.array(run, np.int64))
            row = end

    @staticmethod
    def _end(row: Table) -> int:
        return int(row[H.POSITION] + row[H.SIZE])

    def _copy(self, fd: int, run: Table, epochs: np.ndarray) -> None:
        """Neighbours in the file."""
        start, end = int(run[0, H.POSITION]), self._end(run[-1])
        moved = run.copy()
        moved[:, H.POSITION] += self._size - start
        position = start
        while position < end:
            piece = self._file.read(position, min(_COPY, end - position))
            if not piece:
                raise FileNotFoundError(errno.ENOENT, "the file became shorter while it was read", self._file.path)
            write_all(fd, piece)
            position += len(piece)
        for row in np.flatnonzero((epochs != run[:, H.LEADER_EPOCH]) & (run[:, H.MAGIC] == 2)).tolist():
            at = int(moved[row, H.POSITION]) + layout.LEADER_EPOCH_AT
            os.pwrite(fd, int(epochs[row]).to_bytes(4, "big", signed=True), at)
            self._report.epochs_rewritten += 1
        self._size += end - start
        self._indexes.add(moved)
        self._report.batches += len(run)
        self._follow(run, epochs)

    def _follow(self, run: Table, epochs: np.ndarray) -> None:
        """What later batches, and the partition's small files, need of these."""
        log = self._log
        self._report.losses += [
            Loss(
                loss.path, loss.position, loss.size, loss.why, loss.first_offset, int(run[0, H.BASE_OFFSET]),
                loss.timestamp_before, known(int(run[0, H.MAX_TIMESTAMP])),
            )
            for loss in log.pending
        ]  # fmt: skip
        log.pending.clear()
        changes = np.flatnonzero(np.diff(np.concatenate(([log.leader_epoch], epochs))) > 0)
        ends = [log.last_offset, *run[:, H.LAST_OFFSET].tolist()]
        log.epochs += [
            EpochBegun(int(epochs[row]), ends[row] + 1, int(run[row, H.BASE_OFFSET])) for row in changes.tolist()
        ]
        log.leader_epoch = int(epochs[-1])
        log.last_offset = int(run[-1, H.LAST_OFFSET])
        log.timestamp = int(run[-1, H.MAX_TIMESTAMP])
        of_transactions = (
            (run[:, H.ATTRIBUTES] & _OF_TRANSACTIONS != 0) & (run[:, H.MAGIC] == 2) & (run[:, H.COUNT] > 0)
        )
        for row in np.flatnonzero(of_transactions).tolist():
            header = self._file.header_at(int(run[row, H.POSITION]))
            assert header is not None
            if not header.is_control:
                log.transactions.data_batch(header)
                continue
            try:
                log.transactions.marker(header, control_type(self._file.read(header.position, header.size)))
            except CorruptBatch:
                continue  # the check says so; it ends nothing

    def _lose_up_to(self, position: int) -> None:
        """Report the damage that lies before `position`."""
        while self._damages and self._damages[0][0] < position:
            self._lose(*self._damages.popleft())

    def _lose(self, position: int, size: int, why: str) -> None:
        log = self._log
        log.pending.append(Loss(self._file.path, position, size, why, log.last_offset + 1, None, known(log.timestamp)))
