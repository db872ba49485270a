"""Sources of the aborted transactions in a range of offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kafkalog_spark.format.transaction_index import AbortedTransaction


class IndexedAborts(NamedTuple):
    """Transactions with records in a range of offsets, found in transaction indexes.

    Attributes:
        aborted: Transactions that were aborted before `indexed_until`.
        open: First offset by producer ID of the transactions that had not ended at `indexed_until`.
        indexed_until: Offset up to which the transaction indexes were read.
    """

    aborted: list[AbortedTransaction]
    open: dict[int, int]
    indexed_until: int


class AbortSource(NamedTuple):
    """Range of offsets, and the source of its aborted transactions: transaction indexes or the batch headers.

    Attributes:
        start: First offset.
        until: End of the range.
        find_aborts: Looks the transactions up in transaction indexes. If it is None, or returns None, they are found by
            the batch headers.
    """

    start: int
    until: int
    find_aborts: Callable[[], IndexedAborts | None] | None
