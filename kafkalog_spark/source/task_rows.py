"""Rows of a task: the scanned rows of its splits in the schema of the read, with small batches coalesced."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from functools import partial

import pyarrow as pa

from kafkalog_spark.source.batch_conversion import convert_batch
from kafkalog_spark.source.coalescing import coalesce_batches
from kafkalog_spark.source.record_projection import RecordProjection
from kafkalog_spark.source.split import Split
from kafkalog_spark.source.store_requests import requests_logged
from kafkalog_spark.spark.worker_process import yield_until_spark_stops


def rows_of_task(
    scanned: Generator[pa.RecordBatch, None, None], splits: Sequence[Split], projection: RecordProjection
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task in the schema of the read, and log the requests of its scan.

    Args:
        scanned: The rows of all splits in the columns of the projection. They are scanned when they are taken. It is
            closed at the end and after an error, and closes its segment file then.
        splits: The splits.
        projection: Conversion to the schema of the read.
    """
    stores = [store for split in splits for store in split.location.stores]
    with requests_logged(f"a task of {len(splits)} splits", stores), closing(scanned):
        yield from map(partial(convert_batch, projection), yield_until_spark_stops(coalesce_batches(scanned)))
