"""Transactions of a log at an offset: which are open, and which were aborted.

The headers of batches suffice: a transaction of a producer begins with its first transactional batch and ends with its
next control batch (KIP-98).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.format.transaction_index import AbortedTransaction


@dataclass
class TransactionState:
    """Transactions that are open at an offset, and those that were aborted before it. Batches are added in order.

    Attributes:
        open: First offset by producer ID.
        aborted: Aborted transactions, in the order of their markers.
    """

    open: dict[int, int] = field(default_factory=dict)
    aborted: list[AbortedTransaction] = field(default_factory=list)

    def add_data_batch(self, header: BatchHeader) -> None:
        """Add a transactional batch of records."""
        self.open.setdefault(header.producer_id, header.base_offset)

    def add_marker(self, header: BatchHeader, control_type: int) -> None:
        """Add a control batch. Only commit and abort markers end a transaction; leader changes, for example, do not."""
        if control_type not in (ControlType.ABORT, ControlType.COMMIT):
            return
        first = self.open.pop(header.producer_id, None)
        if first is not None and control_type == ControlType.ABORT:
            last_stable_offset = min(self.open.values(), default=header.base_offset + 1)
            self.aborted.append(AbortedTransaction(header.producer_id, first, header.base_offset, last_stable_offset))

    def last_stable_offset(self, log_end_offset: int) -> int:
        """Return the LSO: the first offset of the oldest open transaction, or the log end offset."""
        return min(self.open.values(), default=log_end_offset)
