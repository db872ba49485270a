"""Look-up of aborted transactions in the transaction indexes of segments, local or remote."""

from __future__ import annotations

from collections.abc import Iterable

from kafkalog_broker.storage.partition.log_segment import LogSegment
from kafkalog_spark.format.transaction_index import AbortedTransaction, collect_aborted


def aborted_in(segments: Iterable[LogSegment], offset: int, up_to: int) -> list[AbortedTransaction]:
    """Return the aborted transactions with records in [offset, up_to).

    Args:
        segments: Segments from the one that contains `offset` on.

    Raises:
        OSError, CorruptIndex: If a transaction index cannot be read.
    """
    aborted: list[AbortedTransaction] = []
    for segment in segments:
        search = collect_aborted(segment.aborted(), offset, up_to)
        aborted += search.transactions
        if search.is_complete:
            break
    return aborted
