"""Aborted transactions that have records in a range of a log. A scan with read_committed excludes their batches.

A .txnindex has the same information. But a missing or truncated one would make the log seem to have no aborted
transactions, and returning an aborted record is worse than the cost of walking the headers.
"""

from __future__ import annotations

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.transaction_state import TransactionState
from kafkalog_spark.log.read.transaction_walk import walk_transactions


def aborted_transactions(
    log: PartitionLog, start: int, end: int, dropped: list[KafkalogError] | None = None
) -> TransactionState:
    """Return the aborted transactions that have records in [start, end).

    In the result, `open` has those without a marker up to the log end. Batches after `end` are read only while
    transactions of the range are open. Of remote segments, complete transaction indexes are used.

    Args:
        log: The partition.
        start: First offset.
        end: End of the range.
        dropped: List to which errors of damage after `end` are added, if the log was opened with pass_over_damage. The
            scan of the range itself finds the damage in it.

    Raises:
        CorruptBatch, UnsupportedFormat: For damage, unless the log was opened with pass_over_damage.
        NotALogDirectory: If the log cannot be read.
    """
    total = TransactionState()
    for begin, until, find_aborts in log.abort_sources(start, end):
        indexed = None if find_aborts is None else find_aborts()
        if indexed is None:
            state, reached = TransactionState(), until
            walk_transactions(log, begin, until, state)
        else:
            state, reached = TransactionState(dict(indexed.open), indexed.aborted), indexed.indexed_until
        unfinished = set(state.open)
        if unfinished:
            walk_transactions(log, reached, log.log_end_offset, state, unfinished, dropped)
        total.aborted += state.aborted
        total.open.update(state.open)
    return total
