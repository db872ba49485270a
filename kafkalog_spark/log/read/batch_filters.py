"""Batch filters: reasons to leave whole batches out of a scan, decided from their headers.

`SegmentScanner.scan` applies them once for each header table, after CRCs and the order of offsets were checked and
before anything is decompressed. A new reason is a class with the method `excludes`, and a function in `FILTERS` that
makes it for a scan. The kernel `select_batches` applies the conditions that need only a header table: on offsets,
timestamps and control batches.
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
from kafkalog_spark.log.read.header_windows import Table
from kafkalog_spark.log.read.last_stable_offset import aborted_transactions
from kafkalog_spark.log.read.partition_log import PartitionLog

if TYPE_CHECKING:
    from kafkalog_spark.log.decode.scan_request import ScanRequest  # loads pyarrow, which the broker does without

_NO_FILTER = np.empty(0, np.uint8)


class BatchFilter(Protocol):
    """One reason to leave out batches."""

    def excludes(self, table: Table) -> npt.NDArray[np.bool_]:
        """Return bool[n]: which batches of a header table (layout.HeaderColumn) are left out."""


class BatchFilters:
    """All batch filters of one scan."""

    def __init__(self, filters: Iterable[BatchFilter]) -> None:
        self._filters = tuple(filters)

    def excluded(self, table: Table) -> npt.NDArray[np.uint8]:
        """Return uint8[n]: 1 for each batch of the header table that a filter excludes; empty without filters."""
        if not self._filters:
            return _NO_FILTER
        first, *others = self._filters
        excluded = first.excludes(table)
        for other in others:
            excluded = excluded | other.excludes(table)
        return excluded.view(np.uint8)


class AbortedBatches:
    """Filter for batches of aborted transactions, held as ranges of offsets by producer."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        by_producer: dict[int, list[tuple[int, int]]] = {}
        for transaction in aborted:
            ranges = by_producer.setdefault(transaction.producer_id, [])
            ranges.append((transaction.first_offset, transaction.last_offset))
        # The ranges of one producer do not overlap, so sorting by first offset also sorts by last offset.
        self._ranges = {
            producer: np.array(sorted(ranges), np.int64).reshape(-1, 2) for producer, ranges in by_producer.items()
        }

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def excludes(self, table: Table) -> npt.NDArray[np.bool_]:
        excluded = np.zeros(len(table), bool)
        mask = layout.ATTRIBUTE_TRANSACTIONAL | layout.ATTRIBUTE_CONTROL
        data = (table[:, HeaderColumn.MAGIC] == 2) & (
            (table[:, HeaderColumn.ATTRIBUTES] & mask) == layout.ATTRIBUTE_TRANSACTIONAL
        )
        if not self._ranges or not data.any():
            return excluded
        for producer in np.unique(table[data, HeaderColumn.PRODUCER_ID]).tolist():
            ranges = self._ranges.get(producer)
            if ranges is None:
                continue
            rows = np.flatnonzero(data & (table[:, HeaderColumn.PRODUCER_ID] == producer))
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
"""Called with the log, the offsets [start, end) of the scan, its request, and the list to which errors of skipped
damage are added. Returns None if the filter would exclude nothing."""


def batch_filters(
    log: PartitionLog, start: int, end: int, request: ScanRequest, dropped: list[KafkalogError]
) -> BatchFilters:
    """Return the batch filters of a scan of [start, end). Raises what reading the log raises."""
    made = (factory(log, start, end, request, dropped) for factory in FILTERS)
    return BatchFilters(found for found in made if found is not None)
