"""Batch filters of a scan: which there are, and how they are created.

A new filter needs a class with the method `excludes` (`batch_exclusion.BatchFilter`), and a function in `FILTERS` that
creates it for a scan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.log.read.aborted_transactions import aborted_transactions
from kafkalog_spark.log.read.batch_exclusion import AbortedBatches, BatchFilter, BatchFilters
from kafkalog_spark.log.read.partition_log import PartitionLog

if TYPE_CHECKING:
    from kafkalog_spark.log.decode.scan_request import ScanRequest  # loads pyarrow, which the broker does without


def _aborted_batches(
    log: PartitionLog, start: int, end: int, request: ScanRequest, dropped: list[KafkalogError]
) -> BatchFilter | None:
    if not request.read_committed:
        return None
    return AbortedBatches(aborted_transactions(log, start, end, dropped).aborted) or None


FilterFactory = Callable[[PartitionLog, int, int, "ScanRequest", list[KafkalogError]], BatchFilter | None]

FILTERS: tuple[FilterFactory, ...] = (_aborted_batches,)
"""Functions that create a filter, with the arguments of `batch_filters`; None if it would exclude nothing."""


def batch_filters(
    log: PartitionLog, start: int, end: int, request: ScanRequest, dropped: list[KafkalogError]
) -> BatchFilters:
    """Return the batch filters of a scan.

    Args:
        log: The partition.
        start: First offset of the scan.
        end: End of its range.
        request: Its request.
        dropped: List to which errors of skipped damage are added.

    Raises:
        KafkalogError: As `aborted_transactions`.
    """
    filters = (create(log, start, end, request, dropped) for create in FILTERS)
    return BatchFilters(batch_filter for batch_filter in filters if batch_filter is not None)
