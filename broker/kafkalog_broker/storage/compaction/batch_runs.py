"""What goes into the cleaner's kernels together, and what comes out: runs of batches of one kind; pieces."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog_broker.storage.compaction.segment_windows import BatchWindow
from kafkalog_spark.errors import CorruptBatch, UnsupportedFormat
from kafkalog_spark.log.format import layout
from kafkalog_spark.log.format.layout import Codec, H
from kafkalog_spark.log.read.decompress import MAX_DECOMPRESSED, Output, decompress
from kafkalog_spark.log.read.scratch import Scratch

DECOMPRESSED = 1 << 20
"""Decompressed bytes that are looked at together; the buffer is brought back to twice that after a larger batch."""
FIRST_BATCH_MAGIC = 2
"""Below it there are messages and message sets, from it on batches."""

Batches = npt.NDArray[np.int64]
"""int64[n, 3]: size, last offset, largest timestamp (ms) of each batch."""


class Piece(NamedTuple):
    """Bytes that stay, good until the next one is asked for; the batches in them, and how many records those have."""

    data: memoryview | bytes
    batches: Batches
    records: int


def runs(table: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Neighbours of one kind: v2 plain, v2 compressed, messages, wrappers."""
    if not len(table):
        return
    compressed = (table[:, H.ATTRIBUTES] & layout.ATTRIBUTE_CODEC) != Codec.NONE
    kind = (table[:, H.MAGIC] < FIRST_BATCH_MAGIC) * 4 + (table[:, H.MAGIC] == 1) * 2 + compressed
    yield from pairwise([0, *(np.flatnonzero(np.diff(kind)) + 1).tolist(), len(table)])


class Decompressor:
    """Decompresses v2 batches one after the other into a buffer that is used again."""

    def __init__(self) -> None:
        self.scratch = Scratch(DECOMPRESSED, most=MAX_DECOMPRESSED + DECOMPRESSED)

    def groups(
        self, window: BatchWindow, first: int, last: int, wanted: npt.NDArray[np.bool_]
    ) -> Iterator[tuple[int, int, npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """(first row, last row, starts, ends in the buffer) for as many batches as decompress to a megabyte.

        Batches that are not `wanted` (by row of the window) get an empty range, and so do those that cannot be
        decompressed.
        """
        starts, ends = np.zeros(last - first, np.int64), np.zeros(last - first, np.int64)
        at, begun = 0, first
        for row in range(first, last):
            starts[row - first] = at
            if wanted[row]:
                codec = int(window.table[row, H.ATTRIBUTES]) & layout.ATTRIBUTE_CODEC
                try:
                    at = decompress(
                        codec, window.batch(row)[layout.RECORDS_AT :], Output(self.scratch, at, MAX_DECOMPRESSED)
                    )
                except (CorruptBatch, UnsupportedFormat):
                    pass  # it has an empty range, and no records where its header announces some
            ends[row - first] = at
            if at >= DECOMPRESSED or row + 1 == last:
                yield begun, row + 1, starts[begun - first : row + 1 - first], ends[begun - first : row + 1 - first]
                at, begun = 0, row + 1
                self.scratch.shrink(2 * DECOMPRESSED)
