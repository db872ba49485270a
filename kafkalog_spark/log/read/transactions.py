"""Which records a read_committed reader does not see, decided from the log itself.

A .txnindex says the same for less work, but a missing or truncated one looks like a log without aborts, and a
wrong row is worse than a second look at the batch headers. Offsets of batches are enough: a producer's transaction
begins with its first transactional batch and ends with the next control batch of that producer (KIP-98).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.layout import ControlType, H
from kafkalog_spark.format.transaction_index import AbortedTransaction


@dataclass
class TransactionState:
    """Transactions open at an offset, and those found aborted before it.

    open: producer id -> first offset. Feed the batches in offset order.
    """

    open: dict[int, int] = field(default_factory=dict)
    aborted: list[AbortedTransaction] = field(default_factory=list)

    def data_batch(self, header: BatchHeader) -> None:
        """A transactional batch of records."""
        self.open.setdefault(header.producer_id, header.base_offset)

    def marker(self, header: BatchHeader, control_type: int) -> None:
        """A control batch; leader changes and the like end no transaction."""
        if control_type not in (ControlType.ABORT, ControlType.COMMIT):
            return
        first = self.open.pop(header.producer_id, None)
        if first is not None and control_type == ControlType.ABORT:
            stable = min(self.open.values(), default=header.base_offset + 1)
            self.aborted.append(AbortedTransaction(header.producer_id, first, header.base_offset, stable))

    def last_stable_offset(self, log_end_offset: int) -> int:
        """LSO: the first offset of the oldest open transaction, or the log end offset."""
        return min(self.open.values(), default=log_end_offset)


class AbortedRanges:
    """Aborted transactions as ranges of offsets per producer, to be asked for whole header tables."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        by_producer: dict[int, list[tuple[int, int]]] = {}
        for transaction in aborted:
            ranges = by_producer.setdefault(transaction.producer_id, [])
            ranges.append((transaction.first_offset, transaction.last_offset))
        # ranges of one producer do not overlap: sorted by their first offset they are sorted by their last
        self._ranges = {
            producer: np.array(sorted(ranges), np.int64).reshape(-1, 2) for producer, ranges in by_producer.items()
        }

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def hides(self, table: np.ndarray) -> np.ndarray:
        """bool[n]: which batches of a header table (layout.H) hold records of aborted transactions."""
        hidden = np.zeros(len(table), bool)
        mask = layout.ATTRIBUTE_TRANSACTIONAL | layout.ATTRIBUTE_CONTROL
        data = (table[:, H.MAGIC] == 2) & ((table[:, H.ATTRIBUTES] & mask) == layout.ATTRIBUTE_TRANSACTIONAL)
        if not self._ranges or not data.any():
            return hidden
        for producer in np.unique(table[data, H.PRODUCER_ID]).tolist():
            ranges = self._ranges.get(producer)
            if ranges is None:
                continue
            rows = np.flatnonzero(data & (table[:, H.PRODUCER_ID] == producer))
            offsets = table[rows, H.BASE_OFFSET]
            slot = np.searchsorted(ranges[:, 0], offsets, side="right") - 1
            hidden[rows] = (slot >= 0) & (offsets <= ranges[np.maximum(slot, 0), 1])
        return hidden
