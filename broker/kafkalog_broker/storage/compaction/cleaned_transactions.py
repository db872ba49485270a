"""State of transactions while the cleaner reads their batches (Kafka: `CleanedTransactionMetadata`).

Records of an aborted transaction are removed immediately. A marker is removed once no batch of its transaction is left,
so it survives them by at least one cleaning. A retained abort marker keeps its entry in the transaction index.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.format.transaction_index import AbortedTransaction


class CleanedTransactions:
    """Decides for each transactional batch whether it may be removed.

    Call `advance_records` and `advance_marker` with the batches in the order of their offsets.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Create the state before the first batch. aborted: All aborted transactions with records in the batches."""
        self._upcoming = [(transaction.first_offset, transaction) for transaction in set(aborted)]
        heapq.heapify(self._upcoming)
        self._aborted: dict[int, AbortedTransaction] = {}  # open at the current offset, by producer ID
        self._seen: set[int] = set()  # producers whose current transaction has had a batch
        self._retained: list[AbortedTransaction] = []

    def advance_records(self, producer_id: int, last_offset: int) -> bool:
        """Advance to a transactional batch of records. Return True if its transaction was aborted."""
        self._begin_up_to(last_offset)
        self._seen.add(producer_id)
        return producer_id in self._aborted

    def advance_marker(self, producer_id: int, last_offset: int, control_type: ControlType | None) -> bool:
        """Advance to a marker. Return True if none of its transaction's batches is left.

        Args:
            control_type: None for a marker whose record was removed earlier.
        """
        self._begin_up_to(last_offset)
        if control_type is None:
            return True
        was_seen = producer_id in self._seen
        self._seen.discard(producer_id)
        if control_type == ControlType.COMMIT:
            return not was_seen
        aborted = self._aborted.pop(producer_id, None)
        if aborted is None or not was_seen:
            return True
        self._retained.append(aborted)
        return False

    def take_retained(self) -> list[AbortedTransaction]:
        """Return, and forget, the aborted transactions whose marker was retained."""
        retained = self._retained
        self._retained = []
        return retained

    def _begin_up_to(self, offset: int) -> None:
        while self._upcoming and self._upcoming[0][0] <= offset:
            transaction = heapq.heappop(self._upcoming)[1]
            self._aborted.setdefault(transaction.producer_id, transaction)
