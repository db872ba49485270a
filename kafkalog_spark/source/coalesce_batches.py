"""Rows of many small partitions as few Arrow batches: each has its price on the way to Spark, whatever it holds."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

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


# Small batches of a stream are read where they are planned, and their rows are handed to Spark with the plan.
#
# A batch of a few records costs a Python task more than its records do: Spark has to give it a worker, a socket and
# an Arrow stream. Spark knows another way for what it calls simple stream readers: rows that come with the plan are
# put into the block manager as the one partition of the batch; should that block get lost, the partition is read as
# any other. The process that plans a stream lives as long as the query, so that files, kernels and caches are warm.

try:
    from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
except ImportError:
    _SimpleStreamReaderWrapper = object

PrefetchingReader: Any = _SimpleStreamReaderWrapper
"""Whom Spark's runner asks for rows."""
SPARK_ASKS = PrefetchingReader is not object
"""The class has a private name: in a release without it every batch is read by tasks."""

MOST_BYTES = 1 << 20
"""Of the segments, as they lie on disk, in a batch that is read on the driver: some 10,000 records of 100 B. Spark
copies such rows one by one, so that from about there on tasks in parallel are worth their start."""
MOST_ROW_BYTES = 4 << 20
"""Of the rows in Arrow: compressed batches grow when decompressed. Spark's driver keeps them as one block."""


class Kernels:
    """Loads what reading needs while the query runs: it takes half a second, and until then tasks do the reading."""

    def __init__(self) -> None:
        self._loader: threading.Thread | None = None
        self._loaded = False

    def ready(self) -> bool:
        """Whether they are loaded; the first time it is asked loading begins."""
        if self._loader is None:
            self._loader = threading.Thread(target=self.load, name="kafkalog-kernels", daemon=True)
            self._loader.start()
        return self._loaded

    def load(self) -> None:
        from kafkalog_spark.log.read import partition_scan  # noqa: F401 - the kernels come with it

        self._loaded = True


KERNELS = Kernels()


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch] | None:
    """The batches, None when they are too large. What is kept is as large as the rows."""
    rows, size = [], 0
    for batch in batches:
        size += batch.nbytes
        if size > MOST_ROW_BYTES:
            return None
        rows.append(as_large_as_its_rows(batch))
    return rows
