"""Read one segment from a position on: windows of bytes, header tables, chosen batches, Arrow rows.

    window (pread) -> sweep (headers) -> choose (offsets, timestamps, transactions) -> CRC -> decompress -> decode

Nothing here knows of directories or of what follows this segment: it ends at the last whole batch, and says why there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import CorruptBatch, KafkalogError, UnsupportedFormat
from kafkalog_spark.log import layout
from kafkalog_spark.log.batch_header import computed_crc, crc_text, parse_prefix
from kafkalog_spark.log.decompress import MAX_DECOMPRESSED, Output, decompress
from kafkalog_spark.log.kernels.decode_legacy import decode_legacy, inspect_message_set
from kafkalog_spark.log.kernels.decode_v2 import decode_v2
from kafkalog_spark.log.kernels.header_rows import rows_from_headers
from kafkalog_spark.log.kernels.primitives import CRC32_TABLE, CRC32C_TABLE
from kafkalog_spark.log.kernels.rows import FAULTS, C, L, Status
from kafkalog_spark.log.kernels.sweep import SweepStatus, end_of_records, sweep
from kafkalog_spark.log.layout import Codec, H
from kafkalog_spark.log.row_buffers import RowBuffers
from kafkalog_spark.log.scratch import Scratch
from kafkalog_spark.log.segment_file import SegmentFile
from kafkalog_spark.log.transactions import AbortedRanges

WINDOW = 1 << 20
"""Bytes read at once: fits the second-level cache, so that CRC, decompression and decoding find the bytes there."""
_TABLE_ROWS = 16 << 10  # of the smallest batches, a window holds about this many
_UNFOLDED = 4 << 20  # decompressed bytes that are decoded together
_LEGACY = 2  # first magic that is not legacy
_COMPRESSED_V2, _FROM_HEADER = 1, 4  # kinds of runs: places in _DECODERS
_NO_PAYLOAD = np.empty(0, np.uint8)
_NO_PAYLOAD.flags.writeable = False


@dataclass(slots=True)
class ScanState:
    """Where a scan stands: what follows, and whether the file ended inside a batch."""

    position: int
    next_offset: int
    """Every record below it has been read, or cannot be wanted."""
    done: bool = False
    """The end of the offset range has been reached."""
    stopped_by: KafkalogError | None = None
    """What lies at `position` when it is not a batch: the caller knows whether that is the end of the log or damage."""


class SegmentScanner:
    """Reads segments of one partition, one after the other, into one RowBuffers; its buffers are used again.

    Peak memory: a window (or the largest batch), what that unfolds to, and two Arrow batches.
    """

    def __init__(
        self, rows: RowBuffers, aborted: AbortedRanges | None = None, max_decompressed: int = MAX_DECOMPRESSED
    ) -> None:
        self._rows = rows
        self._aborted = aborted
        self._max_decompressed = max_decompressed
        self._window = Scratch(WINDOW)
        self._unfolded = Scratch()
        self._table = np.empty((_TABLE_ROWS, len(H)), np.int64)
        self._file: SegmentFile
        self._last_offset = -1

    def scan(self, file: SegmentFile, state: ScanState) -> Iterator[pa.RecordBatch]:
        """Add the rows of `file` from state.position on to the buffers; yields each batch that gets full.

        The offset range is that of the buffers. On return `state` tells where the scan stands; raises CorruptBatch for
        a batch that is wrong inside (CRC, records), with its position and offset.
        """
        self._file = file
        self._last_offset = file.base_offset - 1 if state.position == 0 else -1
        until = int(self._rows.limits[L.OFFSET_UNTIL])
        while not state.done:
            size = min(WINDOW, file.size - state.position)
            table, swept, status = self._sweep_window(state.position, size)
            if not len(table) and status == SweepStatus.OUT_OF_BYTES:
                whole = self._size_of_batch(state)
                if whole is None:
                    return
                table, swept, status = self._sweep_window(state.position, whole)
            if not len(table):
                state.stopped_by = self._what_is_wrong(state.position, status)
                return
            past_end = np.flatnonzero(table[:, H.LAST_OFFSET] >= until - 1)
            if len(past_end):
                table = table[: past_end[0] + 1]
            bad_row, out_of_order = self._check_order(table, state.position)
            yield from self._decode(table[:bad_row], state.position, until)
            if out_of_order is not None:
                raise out_of_order
            self._last_offset = int(table[-1, H.LAST_OFFSET])
            state.next_offset = max(state.next_offset, self._last_offset + 1)
            state.position += swept
            state.done = bool(len(past_end))
            self._window.shrink(WINDOW)

    def _sweep_window(self, position: int, size: int) -> tuple[np.ndarray, int, int]:
        """(header table, bytes it covers, SweepStatus) of the whole batches in `size` bytes from `position` on."""
        filled = self._file.read_into(position, self._window.room(0, size)) if size > 0 else 0
        rows, swept, status = sweep(self._window.read_only(), 0, filled, self._table, CRC32C_TABLE, CRC32_TABLE)
        return self._table[:rows], swept, status

    def _size_of_batch(self, state: ScanState) -> int | None:
        """Bytes of a batch larger than the window; None, with state.stopped_by set, when the file ends before it
        does."""
        left = self._file.size - state.position
        if left <= 0:
            return None
        data = self._file.read(state.position, layout.MAGIC_AT + 1)
        if len(data) <= layout.MAGIC_AT:
            state.stopped_by = CorruptBatch(
                f"the file ends {len(data)} bytes into a batch header", position=state.position
            )
            return None
        try:
            size, _ = parse_prefix(data, 0, state.position)
        except KafkalogError as error:
            state.stopped_by = error
            return None
        if size > left:
            state.stopped_by = CorruptBatch(
                f"a batch of {size} bytes begins here, the file ends after {left}",
                position=state.position,
                offset=int.from_bytes(data[:8], "big", signed=True),
            )
            return None
        return size

    def _what_is_wrong(self, position: int, status: int) -> KafkalogError:
        """The error for a batch that the sweep stopped at."""
        data = self._file.read(position, layout.RECORDS_AT)
        try:
            size, magic = parse_prefix(data, 0, position)
        except KafkalogError as error:
            return error
        offset = int.from_bytes(data[:8], "big", signed=True)
        if status != SweepStatus.BAD_CRC:
            return CorruptBatch(
                f"a batch of {size} bytes, magic {magic} cannot be read", position=position, offset=offset
            )
        return self._crc_error(memoryview(self._file.read(position, size)), magic, position, offset)

    def _crc_error(self, batch: memoryview, magic: int, position: int, offset: int) -> CorruptBatch:
        at = layout.CRC_AT if magic == 2 else layout.LEGACY_CRC_AT
        expected = int.from_bytes(batch[at : at + 4], "big")
        return CorruptBatch(crc_text(magic, expected, computed_crc(batch, magic)), position=position, offset=offset)

    def _check_order(self, table: np.ndarray, position: int) -> tuple[int, CorruptBatch | None]:
        """Offsets lie outside the CRC: they must rise from batch to batch, and stay between this segment's and the
        next's.

        Returns the first row that is wrong, and the error; (number of rows, None) when none is.
        """
        base, last = table[:, H.BASE_OFFSET], table[:, H.LAST_OFFSET]
        bad_count = (table[:, H.COUNT] < 0) & (table[:, H.MAGIC] == 2)
        wrong = (last < base) | bad_count | (base < self._file.base_offset)
        wrong[0] |= bool(base[0] <= self._last_offset)
        wrong[1:] |= base[1:] <= last[:-1]
        following = self._file.next_base_offset
        if following is not None:
            wrong |= last >= following
        if not wrong.any():
            return len(table), None
        row = int(np.argmax(wrong))
        before = self._last_offset if row == 0 else int(last[row - 1])
        what = f"offsets {int(base[row])} to {int(last[row])} do not follow {max(before, self._file.base_offset - 1)}"
        if bad_count[row]:
            what = f"a record count of {int(table[row, H.COUNT])}"
        elif following is not None:
            what += f", or reach into the next segment at {following}"
        where = position + int(table[row, H.POSITION])
        return row, CorruptBatch(what, position=where, offset=int(base[row]))

    def _decode(self, table: np.ndarray, position: int, until: int) -> Iterator[pa.RecordBatch]:
        """Choose from the swept batches, check them, and decode what is left run by run."""
        chosen = self._choose(table, until)
        if not len(chosen):
            return
        unseen = np.flatnonzero(chosen[:, H.CRC_SEEN] == 0)
        facts = chosen[unseen][:, [H.POSITION, H.SIZE, H.MAGIC, H.CRC]].tolist()
        for row, (at, size, magic, crc) in zip(unseen.tolist(), facts, strict=True):
            batch = self._window.view[at : at + size]
            if computed_crc(batch, magic) != crc:
                # The rows before the bad batch are given: whoever asked for no more than them never meets the error.
                yield from self._decode_runs(chosen[:row], position)
                raise self._crc_error(batch, magic, position + at, int(chosen[row, H.BASE_OFFSET]))
        yield from self._decode_runs(chosen, position)

    def _choose(self, table: np.ndarray, until: int) -> np.ndarray:
        """The rows of the table that can hold wanted records; provably none is left out (see DESIGN in docs)."""
        limits = self._rows.limits
        magic, attributes = table[:, H.MAGIC], table[:, H.ATTRIBUTES]
        keep = table[:, H.LAST_OFFSET] >= limits[L.OFFSET_FROM]
        # what the cleaner leaves of a producer's last batch: a header and no record
        keep &= (table[:, H.COUNT] != 0) | (table[:, H.SIZE] != layout.BATCH_OVERHEAD)
        # the first offset of a wrapper is not in its header: it is opened if it can begin before the end
        keep &= (table[:, H.BASE_OFFSET] < until) | (table[:, H.COUNT] < 0)
        keep &= table[:, H.MAX_TIMESTAMP] >= limits[L.TIMESTAMP_FROM]
        v2 = magic == 2
        log_append = v2 & ((attributes & layout.ATTRIBUTE_LOG_APPEND_TIME) != 0)
        keep &= ~(log_append & (table[:, H.MAX_TIMESTAMP] >= limits[L.TIMESTAMP_UNTIL]))
        keep &= ~(v2 & ((attributes & layout.ATTRIBUTE_CONTROL) != 0))
        if self._aborted is not None:
            keep &= ~self._aborted.hides(table)
        return table if keep.all() else table[keep]

    def _decode_runs(self, chosen: np.ndarray, position: int) -> Iterator[pa.RecordBatch]:
        """Decode neighbours of the same kind together: v2 as it lies, v2 compressed, messages, wrappers."""
        if not len(chosen):
            return
        codec = chosen[:, H.ATTRIBUTES] & layout.ATTRIBUTE_CODEC
        kind = (chosen[:, H.MAGIC] < _LEGACY) * 2 + (codec != Codec.NONE)
        if self._rows.header_columns_only:
            kind[self._told_by_header(chosen, kind)] = _FROM_HEADER
        edges = [0, *(np.flatnonzero(np.diff(kind)) + 1).tolist(), len(chosen)]
        for first, last in pairwise(edges):
            run = chosen[first:last]
            yield from _DECODERS[int(kind[first])](self, run, position)

    def _told_by_header(self, chosen: np.ndarray, kind: np.ndarray) -> np.ndarray:
        """Compressed v2 batches without gaps whose timestamps are all the header's, or not asked for: never
        unfolded."""
        whole = chosen[:, H.COUNT] == chosen[:, H.LAST_OFFSET] - chosen[:, H.BASE_OFFSET] + 1
        if self._rows.uses_timestamps:
            whole &= (chosen[:, H.ATTRIBUTES] & layout.ATTRIBUTE_LOG_APPEND_TIME) != 0
        told: np.ndarray = whole & (kind == _COMPRESSED_V2)
        return told

    def _headers_only(self, run: np.ndarray, position: int) -> Iterator[pa.RecordBatch]:
        none = np.zeros(len(run), np.int64)
        yield from self._run_kernel(rows_from_headers, _NO_PAYLOAD, none, none, _v2_units(run), run, position)

    def _plain_v2(self, run: np.ndarray, position: int) -> Iterator[pa.RecordBatch]:
        starts = run[:, H.POSITION] + layout.RECORDS_AT
        ends = run[:, H.POSITION] + run[:, H.SIZE]
        yield from self._run_kernel(decode_v2, self._window.read_only(), starts, ends, _v2_units(run), run, position)

    def _compressed_v2(self, run: np.ndarray, position: int) -> Iterator[pa.RecordBatch]:
        window, scratch = self._window.view, self._unfolded
        starts = np.empty(len(run), np.int64)
        ends = np.empty(len(run), np.int64)
        at = first = 0
        for i, (batch_at, size, attributes, count) in enumerate(
            run[:, [H.POSITION, H.SIZE, H.ATTRIBUTES, H.COUNT]].tolist()
        ):
            starts[i] = at
            output = Output(scratch, at, self._max_decompressed, self._record_guard(count))
            try:
                at = decompress(
                    attributes & layout.ATTRIBUTE_CODEC, window[batch_at + layout.RECORDS_AT : batch_at + size], output
                )
            except KafkalogError as error:
                yield from self._decode_unfolded(starts, ends, run, slice(first, i), position)
                raise error.at(position=position + batch_at, offset=int(run[i, H.BASE_OFFSET])) from None
            ends[i] = at
            if at >= _UNFOLDED or i == len(run) - 1:
                yield from self._decode_unfolded(starts, ends, run, slice(first, i + 1), position)
                at, first = 0, i + 1
                scratch.shrink(2 * _UNFOLDED)

    def _decode_unfolded(
        self, starts: np.ndarray, ends: np.ndarray, run: np.ndarray, part: slice, position: int
    ) -> Iterator[pa.RecordBatch]:
        payload, units = self._unfolded.read_only(), _v2_units(run[part])
        yield from self._run_kernel(decode_v2, payload, starts[part], ends[part], units, run[part], position)

    def _record_guard(self, count: int):  # type: ignore[no-untyped-def]
        """Stops the decompression of a batch as soon as its own record count is served and more bytes come."""

        def served(start: int, end: int) -> None:
            stop = end_of_records(self._unfolded.read_only(), start, end, count)
            if stop == -2 or 0 <= stop < end:
                raise CorruptBatch(f"its records unfold to more than the {count} that its header announces")

        return served

    def _messages(self, run: np.ndarray, position: int) -> Iterator[pa.RecordBatch]:
        starts, ends = run[:, H.POSITION].copy(), run[:, H.POSITION] + run[:, H.SIZE]
        units = _legacy_units(run)
        yield from self._run_kernel(decode_legacy, self._window.read_only(), starts, ends, units, run, position)

    def _wrappers(self, run: np.ndarray, position: int) -> Iterator[pa.RecordBatch]:
        for i in range(len(run)):
            one = run[i : i + 1]
            batch_at, size, magic, attributes, offset = (
                int(one[0, column]) for column in (H.POSITION, H.SIZE, H.MAGIC, H.ATTRIBUTES, H.LAST_OFFSET)
            )
            batch = self._window.view[batch_at : batch_at + size]
            key_at = layout.LEGACY_KEY_AT[magic]
            key_size = int.from_bytes(batch[key_at : key_at + 4], "big", signed=True)
            value_at = key_at + 8 + max(key_size, 0)
            value_size = int.from_bytes(batch[value_at - 4 : value_at], "big", signed=True)
            if key_size < -1 or value_size < 0 or value_at + value_size != size:
                raise CorruptBatch(
                    f"a wrapper with key size {key_size} and value size {value_size}",
                    position=position + batch_at,
                    offset=offset,
                )
            output = Output(self._unfolded, 0, self._max_decompressed)
            try:
                end = decompress(attributes & layout.ATTRIBUTE_CODEC, batch[value_at:], output)
            except KafkalogError as error:
                raise error.at(position=position + batch_at, offset=offset) from None
            payload = self._unfolded.read_only()
            _, last_inner, status, _ = inspect_message_set(payload, 0, end, magic, CRC32_TABLE)
            if status != Status.DONE:
                raise CorruptBatch(FAULTS[Status(status)], position=position + batch_at, offset=offset)
            units = _legacy_units(one)
            # v1: the wrapper has the last offset, the inner ones count from 0; v0: the inner ones are absolute
            units[0, 1] = offset - last_inner if magic == 1 else 0
            bounds = np.array([0], np.int64), np.array([end], np.int64)
            yield from self._run_kernel(decode_legacy, payload, *bounds, units, one, position)
            self._unfolded.shrink(2 * _UNFOLDED)

    def _run_kernel(  # type: ignore[no-untyped-def]
        self, kernel, payload, starts, ends, units, run: np.ndarray, position: int
    ) -> Iterator[pa.RecordBatch]:
        """Call a decode kernel until it is through, emptying or enlarging the row buffers in between."""
        rows = self._rows
        rows.begin()
        while True:
            status = kernel(
                payload, starts, ends, units, rows.cursor, rows.limits, rows.offsets_in, rows.timestamps_in, rows.rows
            )
            if status == Status.DONE:
                return
            if status == Status.FULL:
                yield rows.take()
            elif status in FAULTS:
                row = run[int(rows.cursor[C.UNIT])]
                error = UnsupportedFormat if status == Status.TIMESTAMP_RANGE else CorruptBatch
                raise error(
                    FAULTS[Status(status)],
                    position=position + int(row[H.POSITION]),
                    offset=int(row[H.BASE_OFFSET]),
                )
            else:
                rows.grow(status)


_DECODERS = (
    SegmentScanner._plain_v2,
    SegmentScanner._compressed_v2,
    SegmentScanner._messages,
    SegmentScanner._wrappers,
    SegmentScanner._headers_only,
)
"""By kind of run. Not attributes of the scanner: its buffers would wait for the cycle collector."""


def _v2_units(run: np.ndarray) -> np.ndarray:
    """The `units` of decode_v2 from header table rows."""
    units = np.empty((len(run), 6), np.int64)
    units[:, 0] = run[:, H.BASE_OFFSET]
    units[:, 1] = run[:, H.LAST_OFFSET] - run[:, H.BASE_OFFSET]
    units[:, 2] = run[:, H.COUNT]
    units[:, 3] = run[:, H.BASE_TIMESTAMP]
    units[:, 4] = run[:, H.MAX_TIMESTAMP]
    units[:, 5] = (run[:, H.ATTRIBUTES] & layout.ATTRIBUTE_LOG_APPEND_TIME) != 0
    return units


def _legacy_units(run: np.ndarray) -> np.ndarray:
    """The `units` of decode_legacy from header table rows; for messages that stand alone."""
    log_append = (run[:, H.ATTRIBUTES] & layout.ATTRIBUTE_LOG_APPEND_TIME) != 0
    v1 = run[:, H.MAGIC] == 1
    units = np.zeros((len(run), 6), np.int64)
    units[:, 0] = run[:, H.MAGIC]
    units[:, 2] = run[:, H.LAST_OFFSET]
    units[:, 3] = v1 & log_append
    units[:, 4] = run[:, H.MAX_TIMESTAMP]
    units[:, 5] = np.where(v1, log_append, -1)
    return units
