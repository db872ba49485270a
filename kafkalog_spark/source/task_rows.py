"""Rows of a task: the rows of its splits in the schema of the read, with small batches coalesced.

A batch query (`batch_task`) and a stream (`stream_reader`) scan a split in different ways, so they pass a function for
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from kafkalog_spark.source.coalescing import coalesce_batches
from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.record_projection import RecordProjection
from kafkalog_spark.source.resolved_read import ResolvedRead
from kafkalog_spark.source.row_filter import RowFilter
from kafkalog_spark.source.split import Split
from kafkalog_spark.source.store_requests import requests_logged
from kafkalog_spark.spark.worker_process import yield_until_spark_stops

if TYPE_CHECKING:  # these modules load the kernels
    from kafkalog_spark.log.decode.scan_buffers import ScanBuffers
    from kafkalog_spark.log.decode.scan_request import ScanRequest

    ScanSplit = Callable[[Split, ScanRequest, ScanBuffers], Iterator[pa.RecordBatch]]


def rows_of_task(
    read: ResolvedRead, row_filter: RowFilter, scan_split: ScanSplit, splits: Iterable[Split]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the splits in the schema of the read."""
    projection = RecordProjection(read)
    request = scan_request(read.options, row_filter, projection.columns)
    yield from map(projection.apply, rows_of_splits(scan_split, splits, request))


def rows_of_splits(scan_split: ScanSplit, splits: Iterable[Split], request: ScanRequest) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the splits in the columns of the request. The splits share the buffers of the scan."""
    from kafkalog_spark.log.decode.scan_buffers import ScanBuffers  # loads the kernels

    buffers, splits = ScanBuffers(), list(splits)
    stores = [store for split in splits for store in split.location.stores]
    with requests_logged(f"a task of {len(splits)} splits", stores):
        rows = chain.from_iterable(scan_split(split, request, buffers) for split in splits)
        yield from yield_until_spark_stops(coalesce_batches(rows))


def scan_request(options: ReadOptions, row_filter: RowFilter, columns: tuple[str, ...]) -> ScanRequest:
    """Return the request of a scan.

    Args:
        options: Options of the read.
        row_filter: Pushed filters.
        columns: Columns to scan. With mode=PERMISSIVE they include columns about damage.
    """
    from kafkalog_spark.log.decode.scan_request import ScanRequest

    return ScanRequest(
        columns=columns,
        timestamp_from_ms=row_filter.timestamp_from_ms,
        timestamp_until_ms=row_filter.timestamp_until_ms,
        offset_in=row_filter.offset_in or (),
        timestamp_in_ms=row_filter.timestamp_in_ms or (),
        read_committed=options.read_committed,
        max_decompressed=options.max_decompressed_batch_bytes,
        drop_malformed=options.passes_over_damage,
        wanted=options.wanted,
    )
