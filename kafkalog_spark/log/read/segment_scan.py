"""Scans one segment: from the bytes of its batches to rows in Arrow buffers.

    window (pread) -> sweep (headers) -> order, CRC -> batch filters -> selection (offsets, timestamps) -> decode

`SegmentScanner` reads one file: it stops after the last good batch, and sets the reason in the ScanState. Its caller
decides what that means for the log.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import CorruptBatch, KafkalogError, UnsupportedFormat
from kafkalog_spark.format.batch_header import MAX_UNCHECKED_BYTES, parse_header, read_batch_header
from kafkalog_spark.format.layout import MAX_INT64, HeaderColumn
from kafkalog_spark.kernels.batch_selection import first_invalid_batch
from kafkalog_spark.kernels.primitives import CRC32_TABLE, CRC32C_TABLE
from kafkalog_spark.kernels.rows import Limit
from kafkalog_spark.kernels.sweep import SweepStatus, sweep
from kafkalog_spark.log.decode.batch_selection import BatchSelection
from kafkalog_spark.log.decode.run_decoder import RunDecoder
from kafkalog_spark.log.decode.scan_buffers import WINDOW, ScanBuffers
from kafkalog_spark.log.decode.scan_request import ScanRequest
from kafkalog_spark.log.read.batch_exclusion import BatchFilters
from kafkalog_spark.log.read.batch_order import base_offset_after, is_follower_wrong, offsets_too_high
from kafkalog_spark.log.read.header_windows import HeaderTable, bad_batch_error, check_remaining_crcs
from kafkalog_spark.log.read.segment_file import SegmentFile


@dataclass
class ScanStatistics:
    """Counters of a scan.

    Attributes:
        segments: Number of opened segments.
        bytes_read: Bytes read from .log and index files.
        rows: Number of rows.
        dropped: Errors for the damage that was skipped because of drop_malformed, with file and position.
    """

    segments: int = 0
    bytes_read: int = 0
    rows: int = 0
    dropped: list[KafkalogError] = field(default_factory=list)


@dataclass(slots=True)
class ScanState:
    """Progress of a scan in a segment.

    Attributes:
        position: Position of the next batch.
        next_offset: Offset that the scan has reached. All requested records of the segment below it were read.
        is_done: True at the end of the offset range.
        stopped_by: Error of the bad batch at `position`; None if a good batch begins there or the file ends there. The
            caller decides whether it is the end of the log, damage, or a change of the file since.
        lowest_offset: Lowest base offset that the batch at `position` may have. Unlike next_offset, it may be below the
            start of the range.
    """

    position: int
    next_offset: int
    is_done: bool = False
    stopped_by: KafkalogError | None = None
    lowest_offset: int = 0


def scan_segment(
    scanner: SegmentScanner, file: SegmentFile, state: ScanState, statistics: ScanStatistics
) -> Generator[pa.RecordBatch, None, KafkalogError | None]:
    """Read a segment from `state` on, yielding full Arrow batches.

    Returns:
        The error that stopped the scan, with file and position; None at the end of the segment or of the range.
    """
    try:
        for batch in scanner.scan(file, state):
            statistics.rows += batch.num_rows
            yield batch
    except KafkalogError as error:
        return file.blame(error)
    if state.stopped_by is None or state.is_done:
        return None
    return file.blame(state.stopped_by.at(offset=state.next_offset))


class _Swept(NamedTuple):
    """Result of sweeping a window: header table of its complete batches, and why the sweep stopped after them."""

    table: HeaderTable
    covered: int  # bytes of the batches in `table`
    filled: int  # bytes of the window
    status: int  # a SweepStatus


@dataclass(eq=False)
class SegmentScanner:
    """Reads segments of one partition, one after the other, into `rows`. Only one scan may use the buffers at a time.

    Peak memory: a window (or the largest batch), its decompressed bytes, and two Arrow batches.
    """

    _topic: str
    _partition: int
    _request: ScanRequest
    _buffers: ScanBuffers
    _filters: BatchFilters

    def __post_init__(self) -> None:
        buffers = self._buffers
        self.rows = buffers.rows(self._topic, self._partition, self._request)
        self._window, self._table = buffers.window, buffers.table
        self._decoder = RunDecoder(self.rows, buffers.window, buffers.decompressed, self._request)
        self._file: SegmentFile
        self._last_offset = -1

    def scan(self, file: SegmentFile, state: ScanState) -> Iterator[pa.RecordBatch]:
        """Add the rows of `file` from `state.position` on to `rows`; yield each Arrow batch that becomes full.

        `rows` determines the range of offsets. Afterwards `state` has the progress and what stopped the scan.

        Raises:
            CorruptBatch, UnsupportedFormat: For wrong records under a valid CRC, with position and offset.
        """
        self._file = file
        self._last_offset = file.first_offset - 1 if state.position == file.begin else -1
        until = int(self.rows.limits[Limit.OFFSET_UNTIL])
        while not state.is_done:
            size = min(WINDOW, file.size - state.position)
            table, covered, filled, status = self._sweep_window(state.position, size)
            try:
                if not len(table) and status == SweepStatus.OUT_OF_BYTES:
                    if state.position >= file.size:
                        return
                    header = read_batch_header(
                        file.read, state.position, file.size, MAX_UNCHECKED_BYTES
                    )  # larger than the window
                    table, covered, filled, status = self._sweep_window(state.position, header.size)
                if not len(table):
                    raise bad_batch_error(self._window.view, 0, filled, state.position)
            except (CorruptBatch, UnsupportedFormat) as error:
                state.stopped_by = error
                return
            past_end = np.flatnonzero(table[:, HeaderColumn.LAST_OFFSET] >= until - 1)
            count = int(past_end[0]) + 1 if len(past_end) else len(table)
            good, out_of_order = self._check_order(table, count, state.position, covered)
            # The CRC of unwanted batches is checked, too, because it covers the fields by which they are excluded.
            good, wrong_crc = check_remaining_crcs(table[:good], self._window.view, state.position)
            excluded = self._filters.excluded(table[:good])
            selection = BatchSelection.of(table[:good], excluded, self.rows, self._request)
            yield from self._decoder.decode(selection, state.position)
            if good:
                self._last_offset = int(table[good - 1, HeaderColumn.LAST_OFFSET])
                state.lowest_offset = self._last_offset + 1
                state.next_offset = max(state.next_offset, state.lowest_offset)
            # Yield the rows before a bad batch first: a consumer that stops there does not get the error.
            state.stopped_by = wrong_crc or out_of_order
            if state.stopped_by is not None:
                state.position += int(table[good, HeaderColumn.POSITION])
                return
            state.position += covered
            state.is_done = bool(len(past_end))
            self._window.shrink(WINDOW)

    def _sweep_window(self, position: int, size: int) -> _Swept:
        filled = self._file.read_into(position, self._window.room(0, size)) if size > 0 else 0
        rows, covered, status = sweep(self._window.read_only(), 0, filled, self._table, CRC32C_TABLE, CRC32_TABLE)
        return _Swept(self._table[:rows], covered, filled, status)

    def _check_order(
        self, table: HeaderTable, count: int, position: int, covered: int
    ) -> tuple[int, CorruptBatch | None]:
        """Check that offsets increase from batch to batch, and are between those of this segment and of the next one.

        The CRC does not cover base offsets. The batch after the first `count` rows, in the table or at byte `covered`
        of the window, may show that the last of these rows is wrong.

        Returns:
            The first wrong row and its error; (count, None) if all rows are correct.
        """
        lowest, following = self._file.base_offset, self._file.next_base_offset
        highest = MAX_INT64 if following is None else following - 1
        row = int(first_invalid_batch(table, max(self._last_offset, lowest - 1), lowest, highest))
        too_high = None
        if row == len(table) == count:
            too_high = self._check_not_too_high(table, row, position + covered)
        elif 0 < row <= count and table[row, HeaderColumn.BASE_OFFSET] <= table[row, HeaderColumn.PREVIOUS]:
            too_high = self._check_not_too_high(table, row, position + int(table[row, HeaderColumn.POSITION]))
        if too_high is not None:
            return row - 1, too_high
        if row >= count:
            return count, None
        base, last, previous, records = (
            int(table[row, column])
            for column in (
                HeaderColumn.BASE_OFFSET,
                HeaderColumn.LAST_OFFSET,
                HeaderColumn.PREVIOUS,
                HeaderColumn.COUNT,
            )
        )
        what = f"offsets {base} to {last} do not follow {previous}"
        if records < 0 and table[row, HeaderColumn.MAGIC] == 2:
            what = f"a record count of {records}"
        elif following is not None:
            what += f", or reach into the next segment at {following}"
        _, wrong_crc = check_remaining_crcs(table[row : row + 1], self._window.view, position)
        if wrong_crc is not None:  # if the whole header is damaged, report that and not its offsets
            return row, wrong_crc
        return row, CorruptBatch(what, position=position + int(table[row, HeaderColumn.POSITION]), offset=base)

    def _check_not_too_high(self, table: HeaderTable, row: int, follower_at: int) -> CorruptBatch | None:
        """Return the error for the batch before `row` if the batch at `follower_at` proves its offsets too high."""
        base, last, previous = (
            int(table[row - 1, column])
            for column in (HeaderColumn.BASE_OFFSET, HeaderColumn.LAST_OFFSET, HeaderColumn.PREVIOUS)
        )
        follower = self._file.header_or_none(follower_at)
        if follower is None or follower.base_offset > last or self._file.proven_header(follower_at) is None:
            return None
        if is_follower_wrong(previous, base, last, follower.base_offset, base_offset_after(self._file, follower)):
            return None
        at = int(table[row - 1, HeaderColumn.POSITION])
        header = parse_header(self._window.view, at, follower.position - int(table[row - 1, HeaderColumn.SIZE]))
        return offsets_too_high(header, previous, follower)
