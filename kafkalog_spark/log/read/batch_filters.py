"""Batch filters: they exclude whole batches from a scan, by their headers and by facts from outside the header table.

`SegmentScanner.scan` applies them once for each header table, after CRCs and the order of offsets were checked and
before anything is decompressed. A new filter needs a class with the method `excludes`, and a function in `FILTERS` that
creates it for a scan. Conditions that need only the header table (on offsets, timestamps and control batches) are
applied by the kernel `select_batches` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format import layout
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.format.transaction_index import AbortedTransaction
from kafkalog_spark.log.read.header_windows import HeaderTable
from kafkalog_spark.log.read.last_stable_offset import aborted_transactions
from kafkalog_spark.log.read.partition_log import PartitionLog

if TYPE_CHECKING:
    from kafkalog_spark.log.decode.scan_request import ScanRequest  # loads pyarrow, which the broker does without

_NO_FILTER = np.empty(0, np.uint8)


class BatchFilter(Protocol):
    """A filter that excludes some batches. It serves one scan."""

    def excludes(self, table: HeaderTable) -> npt.NDArray[np.bool_]:
        """Return bool[n]: which batches of a header table are excluded.

        The scan calls this once for each window of headers, in order, over all segments of the range
        (`PartitionLog.segment_index` tells the segment of an offset). The first table may begin with batches before the
        range, because a scan begins at an index entry. If records of a batch are damaged, the scan may come back to the
        batches after it. Control batches, and batches that compaction emptied, are in the table too.
        """


class BatchFilters:
    """All batch filters of one scan."""

    def __init__(self, filters: Iterable[BatchFilter]) -> None:
        self._filters = tuple(filters)

    def excluded(self, table: HeaderTable) -> npt.NDArray[np.uint8]:
        """Return uint8[n]: 1 for each batch of the header table that a filter excludes; empty without filters."""
        if not self._filters:
            return _NO_FILTER
        first, *others = self._filters
        excluded = first.excludes(table)
        for other in others:
            excluded = excluded | other.excludes(table)
        return excluded.view(np.uint8)


class AbortedBatches:
    """Filter that excludes the batches of aborted transactions.

    It is false if no transaction was aborted.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        by_producer: dict[int, list[tuple[int, int]]] = {}
        for transaction in aborted:
            ranges = by_producer.setdefault(transaction.producer_id, [])
            ranges.append((transaction.first_offset, transaction.last_offset))
        # By producer ID, int64[n, 2]: first and last offset of each transaction. The ranges of one producer do not
        # overlap, so sorting by first offset also sorts by last offset.
        self._ranges = {
            producer: np.array(sorted(ranges), np.int64).reshape(-1, 2) for producer, ranges in by_producer.items()
        }

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def excludes(self, table: HeaderTable) -> npt.NDArray[np.bool_]:
        excluded = np.zeros(len(table), bool)
        mask = layout.ATTRIBUTE_TRANSACTIONAL | layout.ATTRIBUTE_CONTROL
        is_transactional = (table[:, HeaderColumn.MAGIC] == 2) & (
            (table[:, HeaderColumn.ATTRIBUTES] & mask) == layout.ATTRIBUTE_TRANSACTIONAL
        )
        if not self._ranges or not is_transactional.any():
            return excluded
        for producer in np.unique(table[is_transactional, HeaderColumn.PRODUCER_ID]).tolist():
            ranges = self._ranges.get(producer)
            if ranges is None:
                continue
            rows = np.flatnonzero(is_transactional & (table[:, HeaderColumn.PRODUCER_ID] == producer))
            offsets = table[rows, HeaderColumn.BASE_OFFSET]
            slot = np.searchsorted(ranges[:, 0], offsets, side="right") - 1
            excluded[rows] = (slot >= 0) & (offsets <= ranges[np.maximum(slot, 0), 1])
        return excluded


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
