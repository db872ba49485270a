"""Check of one segment: every batch, its records, and its indexes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from kafkalog_spark.errors import CorruptBatch, KafkalogError, UnsupportedFormat
from kafkalog_spark.format import layout, offset_index, time_index
from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.format.index_file import MAX_RELATIVE_OFFSET
from kafkalog_spark.format.layout import Codec, HeaderColumn
from kafkalog_spark.log.check.finding import Fault, Findings, Severity
from kafkalog_spark.log.check.index_check import OffsetIndexCheck, TimeIndexCheck
from kafkalog_spark.log.check.transaction_check import TransactionCheck
from kafkalog_spark.log.read.batch_search import find_next_batch
from kafkalog_spark.log.read.header_windows import Table, Window
from kafkalog_spark.log.read.log_end import check_torn
from kafkalog_spark.log.read.segment_file import SegmentFile, too_large


@dataclass(slots=True)
class BatchCheck:
    """Check of the batch headers of one segment, in order.

    Attributes:
        base_offset: Base offset of the segment.
        next_base_offset: Base offset of the next segment; None for the last one.
        last_offset: Last offset of the previous batch, perhaps in the previous segment.
        leader_epoch: Largest leader epoch so far.
        has_gaps: True once offsets or records are missing between batches, as after compaction; never reset.
    """

    base_offset: int
    next_base_offset: int | None
    last_offset: int
    leader_epoch: int = layout.NO_LEADER_EPOCH
    has_gaps: bool = False

    def take(self, table: Table) -> Iterator[Fault]:
        """Yield the faults of the next batches. `table` has at least one row."""
        base, last, count = (
            table[:, HeaderColumn.BASE_OFFSET],
            table[:, HeaderColumn.LAST_OFFSET],
            table[:, HeaderColumn.COUNT],
        )
        v2 = table[:, HeaderColumn.MAGIC] == 2
        previous = np.concatenate(([self.last_offset], last[:-1]))
        lowest = np.maximum(previous + 1, self.base_offset)
        end = layout.MAX_INT64 if self.next_base_offset is None else self.next_base_offset
        for row in _where((base < lowest) | (last < base) | (last >= end)):
            upto = "" if self.next_base_offset is None else f" up to {end - 1}"
            yield _fault(
                table, row, "the offsets of a batch", f"{int(lowest[row])} or higher{upto}",
                f"{int(base[row])} to {int(last[row])}",
            )  # fmt: skip
        for row in _where(last - self.base_offset > MAX_RELATIVE_OFFSET):
            yield _fault(
                table, row, "an offset too far from the segment's base offset for an index",
                f"{self.base_offset + MAX_RELATIVE_OFFSET} at most", str(int(last[row])),
            )  # fmt: skip
        for row in _where(v2 & ((count < 0) | (count > last - base + 1))):
            most = int(last[row] - base[row]) + 1
            yield _fault(table, row, "the record count of a batch", f"0 to {most}", str(int(count[row])))
        codec = table[:, HeaderColumn.ATTRIBUTES] & layout.ATTRIBUTE_CODEC
        for row in _where(codec > max(Codec)):
            yield _fault(table, row, "the codec of a batch", f"0 to {max(Codec)}", str(int(codec[row])))
        epochs = table[:, HeaderColumn.LEADER_EPOCH]
        highest = np.maximum.accumulate(np.concatenate(([self.leader_epoch], epochs)))
        for row in _where((epochs < layout.NO_LEADER_EPOCH) | ((epochs >= 0) & (epochs < highest[:-1]))):
            yield _fault(
                table, row, "the leader epoch of a batch", f"{int(highest[row])} or higher", str(int(epochs[row]))
            )
        self.leader_epoch = int(highest[-1])
        self.has_gaps |= bool(((base != previous + 1) | (v2 & (count != last - base + 1)))[1:].any())
        self.has_gaps |= bool(base[0] != self.last_offset + 1) or bool(v2[0] and count[0] != last[0] - base[0] + 1)
        self.last_offset = int(last[-1])


@dataclass(frozen=True, slots=True)
class EpochCheck:
    """Comparison of a leader-epoch-checkpoint with the batches from the log start offset on."""

    entries: Sequence[EpochEntry]
    log_start_offset: int

    def order(self) -> Iterator[Fault]:
        """Yield a fault for each entry whose epoch or start offset does not increase."""
        for before, after in zip(self.entries, self.entries[1:], strict=False):
            if after.epoch <= before.epoch or after.start_offset < before.start_offset:
                yield Fault(
                    f"the entry of epoch {after.epoch} does not follow",
                    offset=after.start_offset,
                    expected=f"above epoch {before.epoch}, from offset {before.start_offset} on",
                    got=f"epoch {after.epoch}, offset {after.start_offset}",
                )

    def take(self, table: Table) -> Iterator[Fault]:
        """Yield a fault for each batch whose leader epoch differs from the checkpoint's at its base offset."""
        epochs, base = table[:, HeaderColumn.LEADER_EPOCH], table[:, HeaderColumn.BASE_OFFSET]
        starts = np.array([entry.start_offset for entry in self.entries], np.int64)
        by_entry = np.array([layout.NO_LEADER_EPOCH, *(entry.epoch for entry in self.entries)], np.int64)
        listed = by_entry[np.searchsorted(starts, base, side="right")]
        for row in _where((epochs >= 0) & (base >= self.log_start_offset) & (listed != epochs)):
            yield Fault(
                f"the leader epoch at offset {int(base[row])}, whose batch was written in epoch {int(epochs[row])}",
                offset=int(base[row]),
                expected=str(int(epochs[row])),
                got=str(int(listed[row])) if listed[row] >= 0 else "none",
            )


def _where(rows: npt.NDArray[np.bool_]) -> list[int]:
    found: list[int] = np.flatnonzero(rows).tolist()
    return found


def _fault(table: Table, row: int, what: str, expected: str, got: str) -> Fault:
    return Fault(what, int(table[row, HeaderColumn.POSITION]), int(table[row, HeaderColumn.BASE_OFFSET]), expected, got)


class RecordCheck:
    """Finds malformed records in batches with a valid CRC, by decoding them as a reader does.

    Creating an instance loads Numba. Windows must be passed in the order of the log.
    """

    def __init__(self) -> None:
        from kafkalog_spark.log.codecs.scratch import Scratch
        from kafkalog_spark.log.decode.row_buffers import RowBuffers
        from kafkalog_spark.log.decode.scan_request import ScanRequest

        # Without timestamps: Kafka accepts timestamps that do not fit Spark's microseconds.
        self._request = ScanRequest(columns=("offset", "key", "value", "headers"), control_records=True)
        self._rows = RowBuffers("", 0, self._request)
        self._decompressed = Scratch(0)
        self._last_offset = -1

    def take(self, window: Window) -> Iterator[Fault]:
        """Yield a fault for each batch of the window that cannot be decoded."""
        from kafkalog_spark.log.codecs.scratch import Scratch
        from kafkalog_spark.log.decode.batch_selection import BatchSelection
        from kafkalog_spark.log.decode.run_decoder import RunDecoder

        table = window.table.copy()
        if not len(table):
            return
        table[:, HeaderColumn.POSITION] -= window.start
        table[0, HeaderColumn.PREVIOUS], table[1:, HeaderColumn.PREVIOUS] = (
            self._last_offset,
            table[:-1, HeaderColumn.LAST_OFFSET],
        )
        self._last_offset = int(table[-1, HeaderColumn.LAST_OFFSET])
        decoder = RunDecoder(self._rows, Scratch.of(window.data), self._decompressed, self._request)
        chosen = BatchSelection.of(table, np.empty(0, np.uint8), self._rows, self._request)
        positions = table[chosen.rows, HeaderColumn.POSITION] + window.start
        begin = 0
        while begin < len(chosen):
            try:
                for _ in decoder.decode(chosen[begin:], window.start):
                    pass
                begin = len(chosen)
            except (CorruptBatch, UnsupportedFormat) as error:
                if error.position is None:
                    raise
                yield Fault(f"the records of a batch with a valid CRC: {error.what}", error.position, error.offset)
                begin = int(np.searchsorted(positions, error.position, side="right"))
            if self._rows.rows_filled:
                self._rows.take()
                self._rows.ready()


@dataclass(slots=True)
class SegmentResult:
    """Totals of a segment.

    Attributes:
        next_offset: Offset after the last good batch.
        position: Byte after the last good batch.
        is_damaged, has_torn_tail: See PartitionResult.
    """

    next_offset: int
    position: int = 0
    batches: int = 0
    records: int = 0
    is_damaged: bool = False
    has_torn_tail: bool = False


@dataclass(slots=True)
class SegmentCheck:
    """Check of one segment.

    Attributes:
        file: The open segment.
        batches: State of the checks that continue from the previous segment.
        transactions: Transactions of the log so far.
        findings: Gets the faults.
        decode: Also decode the records.
        closed: The broker was stopped cleanly, so there is no torn tail, and indexes are trimmed.
        recovery_point: Offset up to which the log was flushed; None if unknown.
        on_window: Called with each window of good batches; yields further faults.
        on_bytes: Called with the number of bytes that were checked since the last call.
    """

    file: SegmentFile
    batches: BatchCheck
    transactions: TransactionCheck
    findings: Findings
    decode: bool
    closed: bool
    recovery_point: int | None
    on_window: Callable[[Window, BatchCheck], Iterable[Fault]]
    on_bytes: Callable[[int], None]
    _records: RecordCheck | None = None
    _result: SegmentResult = field(init=False)
    _offsets: OffsetIndexCheck = field(init=False)
    _times: TimeIndexCheck = field(init=False)

    def run(self) -> SegmentResult:
        """Check the segment.

        Raises:
            FileNotFoundError: If an index was removed meanwhile.
            NotALogDirectory: If a file cannot be read.
        """
        file, result = self.file, SegmentResult(self.file.base_offset)
        self._result = result
        self._records = RecordCheck() if self.decode else None
        transaction_path, had_gaps = self._path(file.files.transaction_index), self.batches.has_gaps
        self.transactions.begin_segment(self.findings.read(transaction_path, file.aborted) or [])
        may_be_written = file.is_last and not self.closed
        if file.excess:
            self.findings.add(Severity.ERROR, file.path, Fault(too_large(file.size + file.excess), file.size))
        # Read the indexes before the batches. Read afterwards, they might have entries for batches appended meanwhile.
        data = self._index(file.files.offset_index, offset_index.ENTRY_SIZE, "an offset index")
        self._offsets = OffsetIndexCheck(data, file.base_offset)
        data = self._index(file.files.time_index, time_index.ENTRY_SIZE, "a time index")
        self._times = TimeIndexCheck(data, file.base_offset)
        self._walk()
        offset_path, time_path = self._path(file.files.offset_index), self._path(file.files.time_index)
        finished = not (result.is_damaged or result.has_torn_tail or may_be_written)
        if finished:
            self.findings.add_errors(offset_path, self._offsets.finish(result.position))
        self.findings.add_errors(offset_path, self._offsets.faults)
        self.findings.add_errors(time_path, self._times.faults)
        if finished:
            self.findings.add_errors(time_path, self._times.finish())
        for path, padding in ((offset_path, self._offsets.padding), (time_path, self._times.padding)):
            if padding and not may_be_written:
                fault = Fault("zeros after the last entry, which rolling the segment or a clean stop truncates")
                self._add_error_if_closed(path, fault)
        if not result.is_damaged and not had_gaps:
            self.findings.add_errors(transaction_path, self.transactions.finish_segment())
        return result

    def _walk(self) -> None:
        file, result, begin = self.file, self._result, 0
        while True:
            wrong: KafkalogError | None = None
            for window, damage in file.windows(begin):
                wrong = damage
                if len(window.table):
                    self._take(window, begin)
                    begin = result.position
            if wrong is None:
                self.on_bytes(file.size - result.position)
                return
            if self._is_torn_tail(wrong):
                return
            result.is_damaged = True
            self._offsets.skip_damage()
            found = find_next_batch(file, result.position, result.next_offset)
            if found is None:
                self.on_bytes(file.size - result.position)
                return
            self.on_bytes(found.position - result.position)
            begin = result.position = found.position
            self.batches.last_offset, self.batches.has_gaps = found.base_offset - 1, True

    def _take(self, window: Window, begin: int) -> None:
        file, table, result = self.file, window.table, self._result
        previous = self.batches.last_offset
        self.findings.add_errors(file.path, self.batches.take(table))
        self.findings.add_errors(self._path(file.files.offset_index), self._offsets.take(table, previous, begin))
        if not result.is_damaged:  # a damaged batch may have had the largest timestamp
            self.findings.add_errors(self._path(file.files.time_index), self._times.take(table))
        if self._records is not None:
            self.findings.add_errors(file.path, self._records.take(window))
        self.findings.add_errors(file.path, self.on_window(window, self.batches))
        self.findings.add_errors(file.path, self.transactions.take(window, has_gaps=self.batches.has_gaps))
        result.batches += len(table)
        result.records += int(table[:, HeaderColumn.COUNT].clip(0).sum())
        result.next_offset = int(table[-1, HeaderColumn.LAST_OFFSET]) + 1
        end = int(table[-1, HeaderColumn.POSITION] + table[-1, HeaderColumn.SIZE])
        self.on_bytes(end - result.position)
        result.position = end

    def _is_torn_tail(self, wrong: KafkalogError) -> bool:
        """Report the fault after the last good batch. True if it is the torn tail of an interrupted write."""
        file, result = self.file, self._result
        if not file.is_last or self.closed:
            self.findings.add_unreadable(wrong.at(offset=result.next_offset), file.path)
            return False
        try:
            check_torn(file, result.position, result.next_offset, self.recovery_point, wrong)
        except KafkalogError as error:
            self.findings.add_unreadable(error, file.path)
            return False
        left = file.size - result.position
        what = f"a torn tail of {left} bytes, which the next start of a broker truncates ({wrong.what})"
        self.findings.add(Severity.NOTE, file.path, Fault(what, result.position, result.next_offset))
        result.has_torn_tail = True
        self.on_bytes(left)
        return True

    def _index(self, name: str | None, entry_size: int, kind: str) -> bytes:
        if name is None:
            fault = Fault(f"the segment does not have {kind}; the next start of a broker rebuilds it")
            self._add_error_if_closed(self.file.path, fault)
            return b""
        return self.findings.read(self._path(name), partial(self.file.read_index, name, entry_size)) or b""

    def _path(self, name: str | None) -> str:
        """Return the path of an index, or of the .log if `name` is None."""
        return self.file.path if name is None else os.path.join(self.file.directory, name)

    def _add_error_if_closed(self, path: str, fault: Fault) -> None:
        self.findings.add(Severity.ERROR if self.closed else Severity.NOTE, path, fault)
