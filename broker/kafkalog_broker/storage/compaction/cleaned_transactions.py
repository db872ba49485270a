"""Transactions as the cleaner passes them: whose records go, and when a marker may go too (CleanedTransactionMetadata).

Records of an aborted transaction go at once. A marker goes when no batch of its transaction was met any more, so it
outlives them by at least one cleaning; an abort marker that stays keeps its entry of the transaction index.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from kafkalog_spark.log.format.layout import ControlType
from kafkalog_spark.log.format.transaction_index import AbortedTransaction


@dataclass(slots=True)
class _Aborted:
    transaction: AbortedTransaction
    was_met: bool = False


class CleanedTransactions:
    """aborted: all that have records in the offsets that are going to be passed; batches come in order of offsets.

    retained: entries of the transaction index for the abort markers that have stayed, taken away by `take_retained`.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = [(transaction.first_offset, transaction) for transaction in set(aborted)]
        heapq.heapify(self._coming)
        self._aborted: dict[int, _Aborted] = {}  # producer id -> the transaction that is being passed
        self._committed: set[int] = set()
        self._retained: list[AbortedTransaction] = []

    def may_drop_records(self, producer_id: int, last_offset: int) -> bool:
        """A transactional batch of records is passed: whether its transaction was aborted."""
        self._begin_up_to(last_offset)
        aborted = self._aborted.get(producer_id)
        if aborted is None:
            self._committed.add(producer_id)
            return False
        aborted.was_met = True
        return True

    def may_drop_marker(self, producer_id: int, last_offset: int, control_type: ControlType | None) -> bool:
        """A control batch that ends a transaction is passed: whether it has no batch of it to account for any more.

        control_type: None for a control batch that was emptied before.
        """
        self._begin_up_to(last_offset)
        if control_type is None:
            return True
        if control_type == ControlType.COMMIT:
            was_met = producer_id in self._committed
            self._committed.discard(producer_id)
            return not was_met
        aborted = self._aborted.pop(producer_id, None)
        if aborted is None or not aborted.was_met:
            return True
        self._retained.append(aborted.transaction)
        return False

    def take_retained(self) -> list[AbortedTransaction]:
        """The entries since the last call, in order of the markers."""
        retained, self._retained = self._retained, []
        return retained

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            transaction = heapq.heappop(self._coming)[1]
            self._aborted.setdefault(transaction.producer_id, _Aborted(transaction))
