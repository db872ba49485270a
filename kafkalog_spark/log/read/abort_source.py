"""Sources of the aborted transactions in a range of offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kafkalog_spark.format.transaction_index import AbortedTransaction


class IndexedAborts(NamedTuple):
    """Transactions of a range of offsets, by transaction indexes.

    Attributes:
        aborted: Transactions that were aborted before `reached`.
        open: First offset by producer ID of the transactions that had not ended there.
        reached: Offset up to which the transaction indexes were used.
    """

    aborted: list[AbortedTransaction]
    open: dict[int, int]
    reached: int


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
