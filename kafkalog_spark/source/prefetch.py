"""Small batches of a stream are read where they are planned, and their rows are handed to Spark with the plan.

A batch of a few records costs a Python task more than its records do: Spark has to give it a worker, a socket and an
Arrow stream. Spark knows another way for what it calls simple stream readers: rows that come with the plan are put into
the block manager as the one partition of the batch; should that block get lost, the partition is read as any other.
The process that plans a stream lives as long as the query, so that files, kernels and caches are warm.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from kafkalog_spark.source.joined import as_large_as_its_rows

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
