"""Searches for aborted transactions in the transaction indexes of remote segments.

The index of a segment names the transactions whose abort marker is in that segment
(RemoteLogManager.collectAbortedTransactions). So aborted transactions can be found without reading batches.

The indexes of the segments of a range do not suffice: a transaction with records in segment n may be aborted in segment
n+1. Kafka copies a segment only after all of its transactions have ended, so all markers exist, but those after the
last remote segment are in local segments. The producer snapshot after a segment names the transactions that were open
at its end. The caller searches for their markers in the segments that follow.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkalog_spark.errors import CorruptLog, UnsupportedFormat
from kafkalog_spark.format.transaction_index import AbortedTransaction, collect_aborted
from kafkalog_spark.log.read.abort_source import IndexedAborts
from kafkalog_spark.log.remote.remote_indexes import read_aborted_transactions, read_producers
from kafkalog_spark.log.remote.stored_segment import StoredSegment
from kafkalog_spark.log.tiered.key_ring import KeyRing


def find_indexed_aborts(segments: Iterable[StoredSegment], keys: KeyRing, start: int, end: int) -> IndexedAborts | None:
    """Return the aborted transactions with records in offsets [start, end).

    Args:
        segments: Consecutive segments, the first of which contains `start`; a lazy iterable. They may continue after
            `end`.
        keys: Private keys, for encrypted segments.
        start: First offset.
        end: Offset after the last one.

    Returns:
        None if a transaction index does not exist or may be incomplete, or if the last producer snapshot that is needed
        cannot be read.

    Raises:
        CorruptLog, UnsupportedFormat, OSError: If a transaction index cannot be read.
    """
    aborted: dict[AbortedTransaction, None] = {}  # an ordered set: indexes of overlapping segments repeat transactions
    open_transactions: dict[int, int] | None = None  # None also if the snapshot of the last segment cannot be read
    indexed_until = end
    for stored in segments:
        indexed = read_aborted_transactions(stored, keys)
        if indexed is None:
            return None
        search = collect_aborted(indexed, start, end)
        aborted.update(dict.fromkeys(search.transactions))
        indexed_until = stored.segment.until
        if search.is_complete:
            return IndexedAborts(list(aborted), {}, indexed_until)
        if indexed_until >= end:
            open_transactions = _open_transactions(stored, keys, end)
            if open_transactions == {}:
                break
            # Otherwise go on: a later index may have the markers of the open transactions.
    return None if open_transactions is None else IndexedAborts(list(aborted), open_transactions, indexed_until)


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
