"""Contents of compressed batches: v2 batches decompressed until a megabyte is there, wrappers of v0 and v1 opened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise, repeat
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog_spark.errors import CorruptBatch, KafkalogError
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import wrapper_value_at
from kafkalog_spark.format.layout import Codec, H
from kafkalog_spark.kernels.decode_legacy import inspect_message_set
from kafkalog_spark.kernels.primitives import CRC32_TABLE
from kafkalog_spark.kernels.rows import FAULTS, Status
from kafkalog_spark.kernels.sweep import BAD_RECORD_LENGTH, end_of_records
from kafkalog_spark.log.decode.decompress import MAX_DECOMPRESSED, Output, decompress
from kafkalog_spark.log.decode.record_schema import ScanRequest
from kafkalog_spark.log.decode.row_buffers import RowBuffers
from kafkalog_spark.log.decode.scratch import Scratch

DECOMPRESSED = 1 << 20
"""Decompressed bytes that are looked at together; the buffer is brought back to twice that after a larger batch."""

_I64 = npt.NDArray[np.int64]


def runs(kinds: _I64) -> Iterator[tuple[int, int]]:
    """(first, end) of neighbours of the same kind."""
    if len(kinds):
        yield from pairwise([0, *(np.flatnonzero(np.diff(kinds)) + 1).tolist(), len(kinds)])


def kinds_of(table: _I64) -> _I64:
    """int64[n] of a header table: a number for each format, plain and compressed."""
    kinds: _I64 = 2 * table[:, H.MAGIC] + ((table[:, H.ATTRIBUTES] & layout.ATTRIBUTE_CODEC) != Codec.NONE)
    return kinds


class Decompressor:
    """Decompresses v2 batches one after the other into `scratch`, which is used again. limit: bytes of one batch."""

    def __init__(self, scratch: Scratch | None = None, limit: int = MAX_DECOMPRESSED) -> None:
        self.scratch = scratch or Scratch(DECOMPRESSED)
        self.scratch.expect(limit + DECOMPRESSED)
        self.limit = limit

    def groups(
        self, data: memoryview, starts: _I64, ends: _I64, attributes: _I64, counts: _I64, wanted: Iterable[bool] = ()
    ) -> Iterator[tuple[int, int, KafkalogError | None]]:
        """(first, end, error): batches whose records are in the buffer together, until the next ones are asked for.

        starts, ends: where the records of each batch lie in `data`; they are changed to where they lie in the buffer.
        An error is that of the last batch of its group, which has none there; nor has a batch that is not wanted.
        """
        at = first = 0
        last = len(starts) - 1
        packed = zip(starts.tolist(), ends.tolist(), attributes.tolist(), counts.tolist(), strict=True)
        for i, ((begin, end, flags, count), is_wanted) in enumerate(zip(packed, wanted or repeat(True), strict=False)):
            starts[i] = at
            error: KafkalogError | None = None
            if is_wanted:
                try:
                    output = Output(self.scratch, at, self.limit, self._record_guard(count))
                    at = decompress(flags & layout.ATTRIBUTE_CODEC, data[begin:end], output)
                except KafkalogError as found:
                    error = found
            ends[i] = at
            if at >= DECOMPRESSED or i == last or error is not None:
                yield first, i + 1, error
                at, first = 0, i + 1
                self.scratch.shrink(2 * DECOMPRESSED)

    def _record_guard(self, count: int) -> Callable[[int, int], None]:
        """Stops the decompression of a batch as soon as its own record count is served and more bytes come."""

        def served(start: int, end: int) -> None:
            stop = end_of_records(self.scratch.read_only(), start, end, count)
            if stop == BAD_RECORD_LENGTH or 0 <= stop < end:
                raise CorruptBatch(f"its records decompress to more than the {count} that its header announces")

        return served


class OpenedWrapper(NamedTuple):
    """Its messages lie in [0, end) of the scratch buffer. add: what makes an inner offset absolute. key: the wrapper's
    key field, length and bytes."""

    end: int
    add: int
    key: bytes


def open_wrapper(
    batch: memoryview, magic: int, attributes: int, offset: int, scratch: Scratch, limit: int = MAX_DECOMPRESSED
) -> OpenedWrapper:
    """Decompress a wrapper (v0, v1) that has the offset `offset`, and check its messages (AbstractLegacyRecordBatch).

    Raises CorruptBatch, UnsupportedFormat.
    """
    value_at = wrapper_value_at(batch, magic)
    end = decompress(attributes & layout.ATTRIBUTE_CODEC, batch[value_at:], Output(scratch, 0, limit))
    _, last_inner, status, _ = inspect_message_set(scratch.read_only(), 0, end, magic, CRC32_TABLE)
    if status != Status.DONE:
        raise CorruptBatch(FAULTS[Status(status)])
    # v1: the wrapper has the last offset, the inner ones count from 0; v0: the inner ones are absolute
    add = offset - int(last_inner) if magic == 1 else 0
    return OpenedWrapper(end, add, bytes(batch[layout.LEGACY_KEY_AT[magic] : value_at - 4]))


# The memory that scans need: 10 to 20 MB of buffers, which the scans of many partitions use one after the other.

WINDOW = 2 << 20
"""Bytes read at once: what a window costs whatever it holds is then 2 % of its time, and CRC, decompression and
decoding still find its bytes in a cache."""
_TABLE_ROWS = 16 << 10  # of the smallest batches, a window holds about this many


class ScanBuffers:
    """Buffers of one scan at a time. Who keeps a batch that a scan has given keeps the memory of its rows' buffers."""

    def __init__(self) -> None:
        self.window = Scratch(WINDOW)
        self.decompressed = Scratch(DECOMPRESSED)
        self.table = np.empty((_TABLE_ROWS, len(H)), np.int64)
        self._rows: tuple[object, RowBuffers] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers, those of rows that wait to be filled again included."""
        rows = 0 if self._rows is None else self._rows[1].nbytes
        return int(self.window.data.nbytes + self.decompressed.data.nbytes + self.table.nbytes) + rows

    def rows(self, topic: str, partition: int, request: ScanRequest) -> RowBuffers:
        """Those of the scan before, emptied, when it asked for the same rows; new ones otherwise."""
        asked = (
            request.columns, request.timestamp_from_ms, request.timestamp_until_ms, request.offset_in,
            request.timestamp_in_ms,
        )  # fmt: skip
        if self._rows is not None and self._rows[0] == asked:
            self._rows[1].begin_partition(topic, partition)
        else:
            self._rows = asked, RowBuffers(topic, partition, request)
        return self._rows[1]
