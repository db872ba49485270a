"""Rows of many small partitions as few Arrow batches: each has its price on the way to Spark, whatever it holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

SMALL_BATCH = 64 << 10
"""Bytes of rows up to which a batch is copied and joined with its neighbours; a larger one is handed on as it is."""
SMALL_ROWS = 1 << 10
"""So is a batch of as many rows, which is what a scan gives first (row_buffers.FIRST_BATCH_ROWS), for show()."""
JOINED_BATCH = 1 << 20
"""Bytes of rows that are handed over together."""
_FIRST_JOINED = 64 << 10
"""The first ones are smaller, so that show() and limit() have their rows early. It is what the buffer between a Python
worker and Spark holds: fewer do not arrive any earlier."""


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows in their order. What is kept of a small batch is as large as its rows, not as the buffers they came in.

    When `batches` raises, the rows before that are handed over first.
    """
    pending: list[pa.RecordBatch] = []
    held, enough = 0, _FIRST_JOINED
    rows = iter(batches)
    while True:
        try:
            batch = next(rows, None)
        except Exception:
            if pending:
                yield pa.concat_batches(pending)
            raise
        if batch is None:
            break
        size = batch.nbytes
        small = size <= SMALL_BATCH and batch.num_rows < SMALL_ROWS
        if small and batch.num_columns:  # without columns a batch is nothing but a number
            pending.append(as_large_as_its_rows(batch))
            held += size
            batch = None  # its buffers may be filled again
            if held < enough:
                continue
        if pending:
            yield pa.concat_batches(pending)
            pending, held, enough = [], 0, JOINED_BATCH
        if batch is not None:
            yield batch
            enough = JOINED_BATCH
    if pending:
        yield pa.concat_batches(pending)


def as_large_as_its_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A copy. A scan's batches are views of buffers that have room for far more rows, and keep these from being used
    again."""
    return pa.concat_batches([batch]) if batch.num_columns else batch
