"""Read one segment from a position on: windows of bytes, header tables, chosen batches, Arrow rows.

    window (pread) -> sweep (headers) -> CRC -> choose (offsets, timestamps, transactions) -> decode (run_decoder)

Nothing here knows of directories or of what follows this segment: it ends at the last whole batch, and says why there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import CorruptBatch, KafkalogError, UnsupportedFormat
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import BELIEVED, announced_batch, parse_header
from kafkalog_spark.format.layout import H
from kafkalog_spark.kernels.choose import first_out_of_order
from kafkalog_spark.kernels.primitives import CRC32_TABLE, CRC32C_TABLE
from kafkalog_spark.kernels.rows import L
from kafkalog_spark.kernels.sweep import SweepStatus, sweep
from kafkalog_spark.log.decode.batch_contents import WINDOW, ScanBuffers
from kafkalog_spark.log.decode.record_schema import ScanRequest
from kafkalog_spark.log.decode.run_decoder import Chosen, RunDecoder
from kafkalog_spark.log.read.batch_search import base_behind, follower_lies, moved_upward
from kafkalog_spark.log.read.header_windows import check_large, what_is_wrong
from kafkalog_spark.log.read.last_stable_offset import AbortedRanges
from kafkalog_spark.log.read.segment_file import SegmentFile

_NONE_HIDDEN = np.empty(0, np.uint8)


@dataclass(slots=True)
class ScanState:
    """Where a scan stands: what follows, and whether the file ended inside a batch."""

    position: int
    next_offset: int
    """Every record below it has been read, or cannot be wanted."""
    done: bool = False
    """The end of the offset range has been reached."""
    stopped_by: KafkalogError | None = None
    """Why `position` holds no good batch: the caller knows whether that is the end of the log, damage, or a log that
    has changed since it was listed."""
    lowest_offset: int = 0
    """No batch from `position` on begins below it. Unlike next_offset it is not raised to where a range starts: the
    batch that holds the start may begin before it."""


class SegmentScanner:
    """Reads segments of one partition, one after the other, into `rows`. The buffers are its own until it is through.

    Peak memory: a window (or the largest batch), what that decompresses to, and two Arrow batches.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        request: ScanRequest,
        buffers: ScanBuffers,
        aborted: AbortedRanges | None = None,
    ) -> None:
        self.rows = buffers.rows(topic, partition, request)
        self._request = request
        self._aborted = aborted
        self._window = buffers.window
        self._decoder = RunDecoder(self.rows, buffers.window, buffers.decompressed, request)
        self._table = buffers.table
        self._file: SegmentFile
        self._last_offset = -1

    def scan(self, file: SegmentFile, state: ScanState) -> Iterator[pa.RecordBatch]:
        """Add the rows of `file` from state.position on to the buffers; yields each batch that gets full.

        The offset range is that of the buffers. On return `state` tells where the scan stands, and what stopped it;
        raises CorruptBatch, UnsupportedFormat, with position and offset, for records that are wrong although the CRC of
        their batch is right.
        """
        self._file = file
        self._last_offset = file.first_offset - 1 if state.position == file.begin else -1
        until = int(self.rows.limits[L.OFFSET_UNTIL])
        while not state.done:
            size = min(WINDOW, file.size - state.position)
            table, swept, filled, status = self._sweep_window(state.position, size)
            try:
                if not len(table) and status == SweepStatus.OUT_OF_BYTES:
                    if state.position >= file.size:
                        return
                    header = announced_batch(file.read, state.position, file.size, BELIEVED)  # larger than the window
                    table, swept, filled, status = self._sweep_window(state.position, header.size)
                if not len(table):
                    raise what_is_wrong(self._window.view, 0, filled, state.position)
            except (CorruptBatch, UnsupportedFormat) as error:
                state.stopped_by = error
                return
            past_end = np.flatnonzero(table[:, H.LAST_OFFSET] >= until - 1)
            count = int(past_end[0]) + 1 if len(past_end) else len(table)
            good, out_of_order = self._check_order(table, count, state.position, swept)
            # of all batches, also of those not wanted: which ones those are is read from headers that the CRC covers
            good, wrong_crc = check_large(table[:good], self._window.view, state.position)
            hidden = self._aborted.hides(table[:good]).view(np.uint8) if self._aborted else _NONE_HIDDEN
            yield from self._decoder.decode(Chosen.of(table[:good], hidden, self.rows, self._request), state.position)
            if good:
                self._last_offset = int(table[good - 1, H.LAST_OFFSET])
                state.lowest_offset = self._last_offset + 1
                state.next_offset = max(state.next_offset, state.lowest_offset)
            # The rows before a bad batch are given: whoever asked for no more than them never meets the error.
            state.stopped_by = wrong_crc or out_of_order
            if state.stopped_by is not None:
                state.position += int(table[good, H.POSITION])
                return
            state.position += swept
            state.done = bool(len(past_end))
            self._window.shrink(WINDOW)

    def _sweep_window(self, position: int, size: int) -> tuple[np.ndarray, int, int, int]:
        """(header table, bytes it covers, bytes read, SweepStatus) of the whole batches in `size` bytes from `position`
        on."""
        filled = self._file.read_into(position, self._window.room(0, size)) if size > 0 else 0
        rows, swept, status = sweep(self._window.read_only(), 0, filled, self._table, CRC32C_TABLE, CRC32_TABLE)
        return self._table[:rows], swept, filled, status

    def _check_order(self, table: np.ndarray, count: int, position: int, swept: int) -> tuple[int, CorruptBatch | None]:
        """Offsets lie outside the CRC: they must rise from batch to batch, and stay between this segment's and the
        next's.

        Of the first `count` rows; the batch after them, in the table or at byte `swept` of the window, may show that
        the last one is wrong. Returns the first row that is wrong, and the error; (count, None) when none is.
        """
        lowest, following = self._file.base_offset, self._file.next_base_offset
        highest = layout.MAX_INT64 if following is None else following - 1
        row = int(first_out_of_order(table, max(self._last_offset, lowest - 1), lowest, highest))
        upward = None
        if row == len(table) == count:
            upward = self._moved_upward(table, row, position + swept)
        elif 0 < row <= count and table[row, H.BASE_OFFSET] <= table[row, H.PREVIOUS]:
            upward = self._moved_upward(table, row, position + int(table[row, H.POSITION]))
        if upward is not None:
            return row - 1, upward
        if row >= count:
            return count, None
        base, last, previous, records = (
            int(table[row, at]) for at in (H.BASE_OFFSET, H.LAST_OFFSET, H.PREVIOUS, H.COUNT)
        )
        what = f"offsets {base} to {last} do not follow {previous}"
        if records < 0 and table[row, H.MAGIC] == 2:
            what = f"a record count of {records}"
        elif following is not None:
            what += f", or reach into the next segment at {following}"
        return row, self._wrong(table, row, position, what)

    def _moved_upward(self, table: np.ndarray, row: int, after: int) -> CorruptBatch | None:
        """The error for the batch before row `row` if the one at byte `after` of the file, where `row` lies or would
        lie, proves that its offsets are too high."""
        base, last, previous = (int(table[row - 1, at]) for at in (H.BASE_OFFSET, H.LAST_OFFSET, H.PREVIOUS))
        try:
            follower = self._file.header_at(after)
        except (CorruptBatch, UnsupportedFormat):
            return None
        if follower is None or follower.base_offset > last or self._file.proven_header(after) is None:
            return None
        if follower_lies(previous, base, last, follower.base_offset, base_behind(self._file, follower)):
            return None
        at = int(table[row - 1, H.POSITION])
        header = parse_header(self._window.view, at, follower.position - int(table[row - 1, H.SIZE]))
        return moved_upward(header, previous, follower)

    def _wrong(self, table: np.ndarray, row: int, position: int, what: str) -> CorruptBatch:
        """The error for a row; a header that is damaged altogether is not a matter of its offsets."""
        _, wrong_crc = check_large(table[row : row + 1], self._window.view, position)
        where = position + int(table[row, H.POSITION])
        return wrong_crc or CorruptBatch(what, position=where, offset=int(table[row, H.BASE_OFFSET]))
