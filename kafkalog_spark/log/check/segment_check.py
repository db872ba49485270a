"""Check of a segment: every batch, and its indexes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kafkalog_spark.errors import CorruptIndex, KafkalogError
from kafkalog_spark.format import offset_index, time_index
from kafkalog_spark.format.layout import H
from kafkalog_spark.format.transaction_index import ENTRY_SIZE as TRANSACTION_ENTRY_SIZE
from kafkalog_spark.format.transaction_index import AbortedTransaction, parse_transaction_index
from kafkalog_spark.log.check.batch_check import BatchCheck
from kafkalog_spark.log.check.finding import Fault, Findings, Severity
from kafkalog_spark.log.check.index_check import OffsetIndexCheck, TimeIndexCheck
from kafkalog_spark.log.read.batch_search import find_batch_behind
from kafkalog_spark.log.read.log_end import judge_tail
from kafkalog_spark.log.read.segment_file import SegmentFile, Window, too_large


@dataclass(slots=True)
class SegmentResult:
    """Totals of a segment. next_offset: after its last good batch; position: after it, in bytes."""

    next_offset: int
    position: int
    batches: int = 0
    records: int = 0
    is_damaged: bool = False
    has_torn_tail: bool = False


@dataclass(frozen=True, slots=True)
class SegmentCheck:
    """closed: the broker was stopped cleanly, so nothing may be left undone. recovery_point: offset, None: unknown.

    on_window: called with each window of good batches, with its BatchCheck. on_bytes: how many bytes were looked at.
    """

    findings: Findings
    topic_partition: str
    closed: bool
    recovery_point: int | None
    on_window: Callable[[Window, BatchCheck], Iterable[Fault]]
    on_bytes: Callable[[int], None]

    def run(self, file: SegmentFile, batches: BatchCheck) -> SegmentResult:
        """Check one segment. Raises FileNotFoundError when an index goes away meanwhile, NotALogDirectory."""
        may_be_written = file.is_last and not self.closed
        if file.excess:
            fault = Fault(too_large(file.size + file.excess), file.size)
            self.findings.add(Severity.ERROR, file.path, fault, self.topic_partition)
        # Read before the batches are: a live index may tell of batches that come after them.
        offsets = OffsetIndexCheck(
            self._index(file, file.files.offset_index, offset_index.ENTRY_SIZE), file.base_offset
        )
        times = TimeIndexCheck(self._index(file, file.files.time_index, time_index.ENTRY_SIZE), file.base_offset)
        result = self._walk(file, batches, offsets, times)
        whole = not result.is_damaged and not result.has_torn_tail
        if whole and not may_be_written:
            self._tell(self._path(file, file.files.offset_index), offsets.finish(result.position))
        offset_faults, time_faults = offsets.faults, times.faults
        if whole:
            time_faults = [*time_faults, *([] if may_be_written else times.finish(rolled=True))]
        self._tell(self._path(file, file.files.offset_index), offset_faults)
        self._tell(self._path(file, file.files.time_index), time_faults)
        if not may_be_written:
            for name, padding in (
                (file.files.offset_index, offsets.padding),
                (file.files.time_index, times.padding),
            ):
                self._padding(self._path(file, name), padding)
        return result

    def aborted(self, file: SegmentFile) -> list[AbortedTransaction]:
        """The entries of the segment's .txnindex; a damaged one is reported, and has none."""
        name = file.files.transaction_index
        if name is None:
            return []
        path = os.path.join(file.directory, name)
        try:
            return parse_transaction_index(file.read_index(name, TRANSACTION_ENTRY_SIZE), file.base_offset)
        except FileNotFoundError:
            return []
        except (CorruptIndex, OSError) as error:
            self.findings.add_unreadable(error, path, self.topic_partition)
            return []

    def _walk(
        self, file: SegmentFile, batches: BatchCheck, offsets: OffsetIndexCheck, times: TimeIndexCheck
    ) -> SegmentResult:
        result = SegmentResult(file.base_offset, 0)
        begin = 0
        while True:
            wrong: KafkalogError | None = None
            for window, damage in file.windows(begin):
                wrong = damage
                if len(window.table):
                    self._take(file, window, batches, offsets, times, result, begin)
                    begin = result.position
            if wrong is None:
                self.on_bytes(file.size - result.position)
                return result
            if self._is_torn_tail(file, result, wrong):
                return result
            result.is_damaged = True
            offsets.lost()
            found = find_batch_behind(file, result.position, result.next_offset)
            if found is None:
                self.on_bytes(file.size - result.position)
                return result
            self.on_bytes(found.position - result.position)
            begin = result.position = found.position
            batches.last_offset, batches.has_gaps = found.base_offset - 1, True

    def _take(
        self,
        file: SegmentFile,
        window: Window,
        batches: BatchCheck,
        offsets: OffsetIndexCheck,
        times: TimeIndexCheck,
        result: SegmentResult,
        begin: int,
    ) -> None:
        table = window.table
        previous = batches.last_offset
        self._tell(file.path, batches.take(table))
        self._tell(self._path(file, file.files.offset_index), offsets.take(table, previous, begin))
        if not result.is_damaged:  # what lies in damage may have been the latest record
            self._tell(self._path(file, file.files.time_index), times.take(table))
        self._tell(file.path, self.on_window(window, batches))
        result.batches += len(table)
        result.records += int(table[:, H.COUNT].clip(0).sum())
        result.next_offset = int(table[-1, H.LAST_OFFSET]) + 1
        end = int(table[-1, H.POSITION] + table[-1, H.SIZE])
        self.on_bytes(end - result.position)
        result.position = end

    def _is_torn_tail(self, file: SegmentFile, result: SegmentResult, wrong: KafkalogError) -> bool:
        """Tell what is wrong after the last good batch; whether an interrupted write explains it."""
        if file.is_last and not self.closed:
            try:
                judge_tail(file, result.position, result.next_offset, self.recovery_point, wrong)
            except KafkalogError as error:
                self.findings.add_error(error, file.path, self.topic_partition)
                return False
            left = file.size - result.position
            self.findings.add(
                Severity.NOTE,
                file.path,
                Fault(
                    f"a torn tail of {left} bytes, which the next start of a broker cuts off ({wrong.what})",
                    result.position,
                    result.next_offset,
                ),
                self.topic_partition,
            )
            result.has_torn_tail = True
            self.on_bytes(left)
            return True
        self.findings.add_error(wrong.at(offset=result.next_offset), file.path, self.topic_partition)
        return False

    def _index(self, file: SegmentFile, name: str | None, entry_size: int) -> bytes:
        if name is None:
            kind = "an offset index" if entry_size == offset_index.ENTRY_SIZE else "a time index"
            self.findings.add(
                Severity.ERROR if self.closed else Severity.NOTE,
                file.path,
                Fault(f"the segment has not {kind}; the next start of a broker makes it"),
                self.topic_partition,
            )
            return b""
        try:
            return file.read_index(name, entry_size)
        except FileNotFoundError:
            return b""
        except OSError as error:
            self.findings.add_unreadable(error, self._path(file, name), self.topic_partition)
            return b""

    def _padding(self, path: str, size: int) -> None:
        if size:
            self.findings.add(
                Severity.ERROR if self.closed else Severity.NOTE,
                path,
                Fault("zeros after the last entry, which rolling the segment or a clean stop cuts off"),
                self.topic_partition,
            )

    def _tell(self, path: str, faults: Iterable[Fault]) -> None:
        for fault in faults:
            self.findings.add(Severity.ERROR, path, fault, self.topic_partition)

    def _path(self, file: SegmentFile, name: str | None) -> str:
        return file.path if name is None else os.path.join(file.directory, name)
