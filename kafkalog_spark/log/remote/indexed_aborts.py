"""Searches for aborted transactions in the transaction indexes of remote segments.

Kafka copies a segment only after all of its transactions have ended, and copies the index of the transactions whose
abort marker is in the segment (RemoteLogManager.collectAbortedTransactions). Therefore the batches need not be read to
find aborted transactions.

The abort marker of a transaction may be in a later segment, and that segment may be local. The producer snapshot after
a remote segment contains the transactions that were still open there. The caller searches for their markers in the
following segments.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkalog_spark.errors import CorruptLog, UnsupportedFormat
from kafkalog_spark.format.transaction_index import AbortedTransaction, collect_aborted
from kafkalog_spark.log.read.abort_source import IndexedAborts
from kafkalog_spark.log.remote.remote_indexes import read_aborted_transactions, read_producers
from kafkalog_spark.log.remote.stored_segment import StoredSegment
from kafkalog_spark.log.tiered.key_ring import KeyRing


def find_indexed_aborts(
    segments: Iterable[StoredSegment | None], keys: KeyRing, start: int, end: int
) -> IndexedAborts | None:
    """Return the aborted transactions with records in offsets [start, end).

    Args:
        segments: Consecutive segments from the one that contains `start` on, fetched while they are needed. They may
            continue after `end`.
        keys: Private keys, for encrypted segments.
        start: First offset.
        end: Offset after the last one.

    Returns:
        None if a transaction index does not exist or may be incomplete, or if the open transactions are unknown.

    Raises:
        CorruptLog, UnsupportedFormat, OSError: If a transaction index cannot be read.
    """
    aborted: dict[AbortedTransaction, None] = {}  # an ordered set: indexes of overlapping segments repeat transactions
    open_transactions: dict[int, int] | None = None
    reached = end
    for stored in segments:
        assert stored is not None
        indexed = read_aborted_transactions(stored, keys)
        if indexed is None:
            return None
        search = collect_aborted(indexed, start, end)
        aborted.update(dict.fromkeys(search.transactions))
        reached = stored.segment.until
        if search.is_complete:
            return IndexedAborts(list(aborted), {}, reached)
        if reached >= end:
            open_transactions = _open_transactions(stored, keys, end)
            if open_transactions == {}:
                break
    return None if open_transactions is None else IndexedAborts(list(aborted), open_transactions, reached)


def _open_transactions(stored: StoredSegment, keys: KeyRing, end: int) -> dict[int, int] | None:
    """Return the first offset of each transaction that began before `end` and is open after the segment.

    Returns:
        First offsets by producer ID; None if the producer snapshot cannot be read.
    """
    try:
        producers = read_producers(stored, keys)
    except (CorruptLog, UnsupportedFormat, OSError):
        return None
    return {
        entry.producer_id: entry.transaction_first_offset
        for entry in producers
        if entry.has_open_transaction and entry.transaction_first_offset < end
    }
