"""Decode chosen batches run by run: neighbours of the same kind go through one kernel call together.

v2 as it lies | v2 compressed | messages v0, v1 | wrappers v0, v1 | v2 told by its header alone
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import CorruptBatch, KafkalogError, UnsupportedFormat
from kafkalog_spark.log import layout
from kafkalog_spark.log.decompress import Output, decompress
from kafkalog_spark.log.kernels.decode_legacy import decode_legacy, inspect_message_set
from kafkalog_spark.log.kernels.decode_v2 import decode_v2
from kafkalog_spark.log.kernels.header_rows import rows_from_headers
from kafkalog_spark.log.kernels.primitives import CRC32_TABLE
from kafkalog_spark.log.kernels.rows import FAULTS, C, Status
from kafkalog_spark.log.kernels.sweep import end_of_records
from kafkalog_spark.log.layout import Codec, H
from kafkalog_spark.log.row_buffers import RowBuffers
from kafkalog_spark.log.scratch import Scratch

UNFOLDED = 1 << 20
"""Decompressed bytes that are decoded together; the scratch buffer is brought back to twice that after a larger
batch."""

_COMPRESSED_V2, _FROM_HEADER = 1, 4  # kinds of runs: places in _DECODERS
_NO_PAYLOAD = np.empty(0, np.uint8)
_NO_PAYLOAD.flags.writeable = False


class RunDecoder:
    """Fills `rows` from batches in `window`, which starts at byte `position` of the file.

    Batches come as rows of a header table (layout.H), their CRCs checked. Every method yields the RecordBatches that
    get
    full meanwhile. A bad batch raises CorruptBatch, UnsupportedFormat, with position and offset; the rows of those
    before
    it are in the buffers, and none of its own.
    """

    def __init__(self, rows: RowBuffers, window: Scratch, max_decompressed: int) -> None:
        self._rows = rows
        self._window = window
        self._unfolded = Scratch(most=max_decompressed + UNFOLDED)
        self._max_decompressed = max_decompressed

    def decode(self, chosen: np.ndarray, position: int) -> Iterator[pa.RecordBatch]:
        """Decode neighbours of the same kind together: v2 as it lies, v2 compressed, messages, wrappers."""
        if not len(chosen):
            return
        codec = chosen[:, H.ATTRIBUTES] & layout.ATTRIBUTE_CODEC
        kind = (chosen[:, H.MAGIC] < 2) * 2 + (codec != Codec.NONE)
        if self._rows.header_columns_only:
            kind[self._told_by_header(chosen, kind)] = _FROM_HEADER
        edges = [0, *(np.flatnonzero(np.diff(kind)) + 1).tolist(), len(chosen)]
        for first, last in pairwise(edges):
            run = chosen[first:last]
            yield from _DECODERS[int(kind[first])](self, run, position)

    def _told_by_header(self, chosen: np.ndarray, kind: np.ndarray) -> np.ndarray:
        """Compressed v2 batches without gaps whose timestamps are all the header's, or not asked for: never unfolded.

        Their record count is believed as far as that many records can unfold within the limit.
        """
        count = chosen[:, H.COUNT]
        whole = count == chosen[:, H.LAST_OFFSET] - chosen[:, H.BASE_OFFSET] + 1
        # what could not be unfolded is not believed either: unfolding it says why
        whole &= count * layout.MIN_RECORD_SIZE <= self._max_decompressed
        whole &= (chosen[:, H.ATTRIBUTES] & layout.ATTRIBUTE_CODEC) <= Codec.ZSTD
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
            if at >= UNFOLDED or i == len(run) - 1:
                yield from self._decode_unfolded(starts, ends, run, slice(first, i + 1), position)
                at, first = 0, i + 1
                scratch.shrink(2 * UNFOLDED)

    def _decode_unfolded(
        self, starts: np.ndarray, ends: np.ndarray, run: np.ndarray, part: slice, position: int
    ) -> Iterator[pa.RecordBatch]:
        payload, units = self._unfolded.read_only(), _v2_units(run[part])
        yield from self._run_kernel(decode_v2, payload, starts[part], ends[part], units, run[part], position)

    def _record_guard(self, count: int) -> Callable[[int, int], None]:
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
            # v1: the wrapper has the last offset, the inner ones count from 0; v0: the inner ones are absolute
            base = offset - int(last_inner) if magic == 1 else 0
            first = int.from_bytes(payload[:8].tobytes(), "big", signed=True) + base
            previous = int(one[0, H.PREVIOUS])
            if first <= previous or base > layout.MAX_INT64:
                raise CorruptBatch(
                    f"offsets {first} to {offset} of a compressed message set do not follow {previous}",
                    position=position + batch_at,
                    offset=offset,
                )
            units = _legacy_units(one)
            units[0, 1] = base
            bounds = np.array([0], np.int64), np.array([end], np.int64)
            yield from self._run_kernel(decode_legacy, payload, *bounds, units, one, position)
            self._unfolded.shrink(2 * UNFOLDED)

    def _run_kernel(
        self,
        kernel: Callable[..., int],
        payload: np.ndarray,
        starts: np.ndarray,
        ends: np.ndarray,
        units: np.ndarray,
        run: np.ndarray,
        position: int,
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
                rows.ready()
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


_DECODERS: tuple[Any, ...] = (
    RunDecoder._plain_v2,
    RunDecoder._compressed_v2,
    RunDecoder._messages,
    RunDecoder._wrappers,
    RunDecoder._headers_only,
)
"""By kind of run. Not attributes of the decoder: its buffers would wait for the cycle collector."""


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
