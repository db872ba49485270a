"""Coalescing of small record batches before they are handed to Spark: every batch has a fixed cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

SMALL_BATCH = 64 << 10
"""Bytes. A batch up to this size is copied and coalesced with adjacent batches; a larger one is passed on unchanged."""
SMALL_ROWS = 1 << 10
"""Rows. A batch of at least so many rows is passed on unchanged. This is the size of the first batch of a scan
(`scan_request.FIRST_BATCH_ROWS`), which show() should receive without delay."""
COALESCED_BATCH = 1 << 20  # bytes of a coalesced batch
_FIRST_COALESCED = 64 << 10
"""Bytes of the first coalesced batch, for show() and limit(): the size of the buffer between worker and Spark."""


def coalesce_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches in their order, small ones copied and concatenated.

    If `batches` raises, the rows before the error are yielded first.
    """
    pending: list[pa.RecordBatch] = []
    pending_bytes, target_bytes = 0, _FIRST_COALESCED
    try:
        for batch in batches:
            size = batch.nbytes  # computed at every access
            is_small = size <= SMALL_BATCH and batch.num_rows < SMALL_ROWS
            if is_small and batch.num_columns:  # a batch without columns has only a number of rows
                pending.append(compacted(batch))
                pending_bytes += size
                batch = None  # releases the buffers of the scan, which can then fill them again
                if pending_bytes < target_bytes:
                    continue
            if pending:
                yield pa.concat_batches(pending)
                pending, pending_bytes, target_bytes = [], 0, COALESCED_BATCH
            if batch is not None:
                yield batch
                target_bytes = COALESCED_BATCH
    except Exception:
        if pending:
            yield pa.concat_batches(pending)
        raise
    if pending:
        yield pa.concat_batches(pending)


def compacted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a copy of a batch that does not refer to the much larger buffers of its scan."""
    return pa.concat_batches([batch]) if batch.num_columns else batch
