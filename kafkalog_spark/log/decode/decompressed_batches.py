"""Decompression into a scratch buffer: of groups of v2 batches, and of the messages in a wrapper (v0, v1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import repeat
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog_spark.errors import CorruptBatch, KafkalogError
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import wrapper_value_at
from kafkalog_spark.format.layout import MAX_DECOMPRESSED
from kafkalog_spark.kernels.decode_legacy import inspect_message_set
from kafkalog_spark.kernels.primitives import CRC32_TABLE
from kafkalog_spark.kernels.record_end import BAD_RECORD_LENGTH, end_of_records
from kafkalog_spark.kernels.rows import Status
from kafkalog_spark.log.codecs.decompress import decompress
from kafkalog_spark.log.codecs.output import Output
from kafkalog_spark.log.codecs.scratch import Scratch

_I64 = npt.NDArray[np.int64]

DECOMPRESSED = 1 << 20
"""Bytes of decompressed records that are decoded together. After a larger batch, the buffer shrinks to twice this."""


class BatchGroup(NamedTuple):
    """The batches [first, end), with the error of the last one."""

    first: int
    end: int
    error: KafkalogError | None


class Decompressor:
    """Decompresses v2 batches, one after the other, into `scratch`.

    Args:
        scratch: The buffer; None to create one.
        limit: Largest number of decompressed bytes of a batch.
    """

    def __init__(self, scratch: Scratch | None = None, limit: int = MAX_DECOMPRESSED) -> None:
        self.scratch = scratch or Scratch(DECOMPRESSED)
        self.scratch.expect(limit + DECOMPRESSED)
        self.limit = limit

    def groups(
        self,
        data: memoryview,
        starts: _I64,
        ends: _I64,
        attributes: _I64,
        counts: _I64,
        selected: Iterable[bool] = (),
    ) -> Iterator[BatchGroup]:
        """Yield groups of batches. The records of a group are in the buffer until the next group is requested.

        Args:
            data: Bytes of the batches.
            starts: Position in `data` of the records of each batch. Changed to their position in the buffer.
            ends: Position at which they end. Changed in the same way.
            attributes: Attributes of each batch.
            counts: Number of records of each batch.
            selected: False for each batch that need not be decompressed; empty to decompress all.

        Yields:
            A group. Its error, if any, is that of its last batch. That batch has no records in the buffer, and neither
            has one that is not selected.
        """
        at = first = 0
        last = len(starts) - 1
        packed = zip(starts.tolist(), ends.tolist(), attributes.tolist(), counts.tolist(), strict=True)
        for i, ((begin, end, flags, count), is_selected) in enumerate(
            zip(packed, selected or repeat(True), strict=False)
        ):
            starts[i] = at
            error: KafkalogError | None = None
            if is_selected:
                try:
                    output = Output(self.scratch, at, self.limit, partial(self._check_count, count))
                    at = decompress(flags & layout.ATTRIBUTE_CODEC, data[begin:end], output)
                except KafkalogError as found:
                    error = found
            ends[i] = at
            if at >= DECOMPRESSED or i == last or error is not None:
                yield BatchGroup(first, i + 1, error)
                at, first = 0, i + 1
                self.scratch.shrink(2 * DECOMPRESSED)

    def _check_count(self, count: int, start: int, end: int) -> None:
        """Raise CorruptBatch if the bytes so far hold more records than the header of the batch announces."""
        stop = end_of_records(self.scratch.read_only(), start, end, count)
        if stop == BAD_RECORD_LENGTH or 0 <= stop < end:
            raise CorruptBatch(f"its records decompress to more than the {count} that its header announces")


class OpenedWrapper(NamedTuple):
    """Messages of a wrapper, in [0, end) of the scratch buffer.

    Attributes:
        end: Number of bytes.
        offset_shift: Number to add to an inner offset to make it absolute.
        key: Bytes of the wrapper's key field, with its length.
    """

    end: int
    offset_shift: int
    key: bytes


def open_wrapper(
    batch: memoryview, magic: int, attributes: int, offset: int, scratch: Scratch, limit: int = MAX_DECOMPRESSED
) -> OpenedWrapper:
    """Decompress a wrapper (v0, v1) with offset `offset`, and check its messages (Kafka: `AbstractLegacyRecordBatch`).

    Raises:
        CorruptBatch, UnsupportedFormat: If the wrapper or one of its messages is damaged.
    """
    value_at = wrapper_value_at(batch, magic)
    end = decompress(attributes & layout.ATTRIBUTE_CODEC, batch[value_at:], Output(scratch, 0, limit))
    _, last_inner, status, _ = inspect_message_set(scratch.read_only(), 0, end, magic, CRC32_TABLE)
    if status != Status.DONE:
        raise CorruptBatch(Status(status).text)
    # v1: inner offsets begin at 0, and the wrapper has the absolute offset of the last message. v0: they are absolute.
    offset_shift = offset - int(last_inner) if magic == 1 else 0
    return OpenedWrapper(end, offset_shift, bytes(batch[layout.LEGACY_KEY_LENGTH_AT[magic] : value_at - 4]))
