"""Checks one segment: its batches, their records, and its indexes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format import offset_index, time_index
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.log.check.batch_check import BatchCheck
from kafkalog_spark.log.check.finding import Fault, Findings, Severity
from kafkalog_spark.log.check.index_check import OffsetIndexCheck, TimeIndexCheck
from kafkalog_spark.log.check.record_check import RecordCheck
from kafkalog_spark.log.check.transaction_check import TransactionCheck
from kafkalog_spark.log.read.batch_search import find_next_batch
from kafkalog_spark.log.read.header_windows import Window, batch_end
from kafkalog_spark.log.read.log_end import check_torn
from kafkalog_spark.log.read.segment_file import SegmentFile, too_large


@dataclass(slots=True)
class SegmentResult:
    """Totals of a segment.

    Attributes:
        next_offset: Offset after the last good batch.
        position: Byte after the last good batch.
        is_damaged: A batch cannot be read, so faults that depend on it are not reported.
        has_torn_tail: See PartitionResult.
    """

    next_offset: int
    position: int = 0
    batches: int = 0
    records: int = 0
    is_damaged: bool = False
    has_torn_tail: bool = False


@dataclass(slots=True)
class SegmentCheck:
    """Checks one segment.

    Attributes:
        file: The open segment.
        batches: State of the checks that continue from the previous segment.
        transactions: Transactions of the log so far.
        findings: Collects the faults.
        decode_records: Also decode the records.
        was_closed_cleanly: The broker was stopped cleanly, so there is no torn tail, and indexes are trimmed.
        recovery_point: Offset up to which the log was flushed; None if unknown.
        on_window: Called with each window of good batches; yields further faults.
        on_bytes: Called with the number of bytes that were checked since the last call.
    """

    file: SegmentFile
    batches: BatchCheck
    transactions: TransactionCheck
    findings: Findings
    decode_records: bool
    was_closed_cleanly: bool
    recovery_point: int | None
    on_window: Callable[[Window, BatchCheck], Iterable[Fault]]
    on_bytes: Callable[[int], None]
    _record_check: RecordCheck | None = None
    _result: SegmentResult = field(init=False)
    _offset_index: OffsetIndexCheck = field(init=False)
    _time_index: TimeIndexCheck = field(init=False)

    def run(self) -> SegmentResult:
        """Check the segment.

        Raises:
            FileNotFoundError: If an index was removed after the segment was listed.
            NotALogDirectory: If the .log cannot be read.
        """
        file = self.file
        result = self._result = SegmentResult(file.base_offset)
        self._record_check = RecordCheck() if self.decode_records else None
        transaction_path = self._path(file.files.transaction_index)
        had_gaps = self.batches.has_gaps
        self.transactions.begin_segment(self.findings.read(transaction_path, file.aborted) or [])
        may_be_written = file.is_last and not self.was_closed_cleanly
        if file.excess:
            self.findings.add(Severity.ERROR, file.path, Fault(too_large(file.size + file.excess), file.size))
        # Read the indexes before the batches: later, they might have entries for batches that were appended since.
        data = self._read_index(file.files.offset_index, offset_index.ENTRY_SIZE, "an offset index")
        self._offset_index = OffsetIndexCheck(data, file.base_offset)
        data = self._read_index(file.files.time_index, time_index.ENTRY_SIZE, "a time index")
        self._time_index = TimeIndexCheck(data, file.base_offset)
        self._check_batches()
        offset_path = self._path(file.files.offset_index)
        time_path = self._path(file.files.time_index)
        is_complete = not (result.is_damaged or result.has_torn_tail or may_be_written)
        if is_complete:
            self.findings.add_errors(offset_path, self._offset_index.finish(result.position))
        self.findings.add_errors(offset_path, self._offset_index.faults)
        self.findings.add_errors(time_path, self._time_index.faults)
        if is_complete:
            self.findings.add_errors(time_path, self._time_index.finish())
        for path, padding in ((offset_path, self._offset_index.padding), (time_path, self._time_index.padding)):
            if padding and not may_be_written:
                what = "zeros after the last entry; a roll of the segment or a clean stop of the broker truncates them"
                self._add_error_if_closed(path, Fault(what))
        if not result.is_damaged and not had_gaps:
            self.findings.add_errors(transaction_path, self.transactions.finish_segment())
        return result

    def _check_batches(self) -> None:
        """Check the batches, and report damage between them."""
        file, result = self.file, self._result
        begin = 0  # the first batch, or the first one after damage
        while True:
            error: KafkalogError | None = None
            window_begin = begin
            for window, error in file.windows(begin):  # noqa: B007 - the last error is used after the loop
                if len(window.table):
                    self._check_window(window, window_begin)
                    window_begin = result.position
            if error is None:
                self.on_bytes(file.size - result.position)
                return
            if self._is_torn_tail(error):
                return
            result.is_damaged = True
            self._offset_index.skip_damage()
            next_batch = find_next_batch(file, result.position, result.next_offset)
            if next_batch is None:
                self.on_bytes(file.size - result.position)
                return
            self.on_bytes(next_batch.position - result.position)
            begin = result.position = next_batch.position
            self.batches.last_offset = next_batch.base_offset - 1
            self.batches.has_gaps = True

    def _check_window(self, window: Window, window_begin: int) -> None:
        file, table, result = self.file, window.table, self._result
        offset_path = self._path(file.files.offset_index)
        previous = self.batches.last_offset
        self.findings.add_errors(file.path, self.batches.check_batches(table))
        self.findings.add_errors(offset_path, self._offset_index.check_entries(table, previous, window_begin))
        if not result.is_damaged:  # a damaged batch may have had the largest timestamp
            self.findings.add_errors(self._path(file.files.time_index), self._time_index.check_entries(table))
        if self._record_check is not None:
            self.findings.add_errors(file.path, self._record_check.check_records(window))
        self.findings.add_errors(file.path, self.on_window(window, self.batches))
        self.findings.add_errors(file.path, self.transactions.check_batches(window, has_gaps=self.batches.has_gaps))
        result.batches += len(table)
        result.records += int(table[:, HeaderColumn.COUNT].clip(0).sum())
        result.next_offset = int(table[-1, HeaderColumn.LAST_OFFSET]) + 1
        end = batch_end(table[-1])
        self.on_bytes(end - result.position)
        result.position = end

    def _is_torn_tail(self, error: KafkalogError) -> bool:
        """Report the error of the bad batch. Return True if an interrupted write left it (a torn tail)."""
        file, result = self.file, self._result
        if not file.is_last or self.was_closed_cleanly:
            self.findings.add_unreadable(error.at(offset=result.next_offset), file.path)
            return False
        try:
            check_torn(file, result.position, result.next_offset, self.recovery_point, error)
        except KafkalogError as damage:
            self.findings.add_unreadable(damage, file.path)
            return False
        size = file.size - result.position
        what = f"a torn tail of {size} bytes, which the next start of a broker truncates ({error.what})"
        self.findings.add(Severity.NOTE, file.path, Fault(what, result.position, result.next_offset))
        result.has_torn_tail = True
        self.on_bytes(size)
        return True

    def _read_index(self, name: str | None, entry_size: int, index_type: str) -> bytes:
        if name is None:
            fault = Fault(f"the segment does not have {index_type}; the next start of a broker rebuilds it")
            self._add_error_if_closed(self.file.path, fault)
            return b""
        return self.findings.read(self._path(name), partial(self.file.read_index, name, entry_size)) or b""

    def _path(self, name: str | None) -> str:
        """Return the path of an index, or of the .log if `name` is None."""
        return self.file.path if name is None else os.path.join(self.file.directory, name)

    def _add_error_if_closed(self, path: str, fault: Fault) -> None:
        self.findings.add(Severity.ERROR if self.was_closed_cleanly else Severity.NOTE, path, fault)
