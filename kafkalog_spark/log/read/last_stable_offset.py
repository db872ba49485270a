"""The last stable offset of a partition, and the transactions that are open at an offset.

Both are found from a producer snapshot and the batches after it.
"""

from __future__ import annotations

from kafkalog_spark.format.producer_snapshot import open_transactions
from kafkalog_spark.log.read.log_end import LogEnd
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.transaction_state import TransactionState
from kafkalog_spark.log.read.transaction_walk import walk_transactions


def last_stable_offset(log: PartitionLog) -> int:
    """Return the LSO: the first offset of the oldest transaction open at the log's end, or the log end offset."""
    return StableOffsetWalk().last_stable_offset(log)


def open_transactions_at(log: PartitionLog, offset: int) -> dict[int, int]:
    """Return the transactions that are open at `offset` (producer ID -> first offset).

    Reads the newest good producer snapshot, and the batches from there to `offset`.

    Raises:
        CorruptBatch, UnsupportedFormat: For damage, unless the log was opened with pass_over_damage.
        NotALogDirectory: If the log cannot be read.
    """
    start, producers = log.latest_snapshot(offset) or (log.log_start_offset, [])
    state = TransactionState(open_transactions(producers))
    walk_transactions(log, start, offset, state)
    return state.open


class StableOffsetWalk:
    """Finds the LSO of a growing log repeatedly.

    Each walk resumes where the previous one ended, if the log was not truncated there.
    """

    def __init__(self) -> None:
        self._state = TransactionState()
        self._reached: LogEnd | None = None

    def last_stable_offset(self, log: PartitionLog) -> int:
        """Return the current LSO. Raises as `open_transactions_at`."""
        end, reached = log.log_end, self._reached
        self._reached = None  # a walk that fails leaves an incomplete state
        if reached is not None and log.is_end_unchanged(reached):
            start = reached.offset
        else:
            start, producers = log.latest_snapshot(end.offset) or (log.log_start_offset, [])
            self._state = TransactionState(open_transactions(producers))
        walk_transactions(log, start, end.offset, self._state)
        self._state.aborted.clear()
        self._reached = end
        # A transaction may have begun in records that were deleted since. Its remaining records are not stable.
        return max(self._state.last_stable_offset(end.offset), log.log_start_offset)
