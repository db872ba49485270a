"""Coalescing of small record batches before they are handed to Spark: every batch has a fixed cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

SMALL_BATCH = 64 << 10
"""Bytes. A batch up to this size is copied and coalesced with its neighbours; a larger one is passed on unchanged."""
SMALL_ROWS = 1 << 10
"""Rows. A batch of at least this size is passed on unchanged. It is the size of the first batch of a scan
(`scan_request.FIRST_BATCH_ROWS`), which show() should receive without delay."""
COALESCED_BATCH = 1 << 20  # bytes of a coalesced batch
_FIRST_COALESCED = 64 << 10
"""Bytes of the first coalesced batch, for show() and limit(): the size of the buffer between worker and Spark."""


def coalesce_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches in their order, small ones copied and concatenated.

    If `batches` raises, the rows before the error are yielded first.
    """
    pending: list[pa.RecordBatch] = []
    held, enough = 0, _FIRST_COALESCED
    try:
        for batch in batches:
            size = batch.nbytes  # computed at every access
            small = size <= SMALL_BATCH and batch.num_rows < SMALL_ROWS
            if small and batch.num_columns:  # a batch without columns is only a number of rows
                pending.append(as_large_as_its_rows(batch))
                held += size
                batch = None  # lets the scan fill its buffers again
                if held < enough:
                    continue
            if pending:
                yield pa.concat_batches(pending)
                pending, held, enough = [], 0, COALESCED_BATCH
            if batch is not None:
                yield batch
                enough = COALESCED_BATCH
    except Exception:
        if pending:
            yield pa.concat_batches(pending)
        raise
    if pending:
        yield pa.concat_batches(pending)


def as_large_as_its_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a copy of a batch that does not keep the much larger buffers of its scan in memory."""
    return pa.concat_batches([batch]) if batch.num_columns else batch
