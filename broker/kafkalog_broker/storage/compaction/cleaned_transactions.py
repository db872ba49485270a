"""Transactions whose batches the cleaner passes (Kafka's CleanedTransactionMetadata).

Records of an aborted transaction are removed immediately. A marker is removed once no batch of its transaction is left,
so it survives them by at least one cleaning. An abort marker that is kept keeps its entry in the transaction index.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.format.transaction_index import AbortedTransaction


class CleanedTransactions:
    """aborted: all with records in the offsets that are going to be passed; batches come in order of offsets."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = [(transaction.first_offset, transaction) for transaction in set(aborted)]
        heapq.heapify(self._coming)
        self._aborted: dict[int, AbortedTransaction] = {}  # by producer id: those that are being passed
        self._met: set[int] = set()  # producers whose transaction has had a batch
        self._retained: list[AbortedTransaction] = []

    def may_drop_records(self, producer_id: int, last_offset: int) -> bool:
        """A transactional batch of records is passed: True when its transaction was aborted."""
        self._begin_up_to(last_offset)
        self._met.add(producer_id)
        return producer_id in self._aborted

    def may_drop_marker(self, producer_id: int, last_offset: int, control_type: ControlType | None) -> bool:
        """True when no batch of the transaction ended here is left. control_type: None for a marker emptied before."""
        self._begin_up_to(last_offset)
        if control_type is None:
            return True
        was_met = producer_id in self._met
        self._met.discard(producer_id)
        if control_type == ControlType.COMMIT:
            return not was_met
        aborted = self._aborted.pop(producer_id, None)
        if aborted is None or not was_met:
            return True
        self._retained.append(aborted)
        return False

    def take_retained(self) -> list[AbortedTransaction]:
        retained, self._retained = self._retained, []
        return retained

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            transaction = heapq.heappop(self._coming)[1]
            self._aborted.setdefault(transaction.producer_id, transaction)
