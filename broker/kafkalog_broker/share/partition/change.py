"""What became of records of a share partition and is not written yet: it is written and then `done`, or undone.

Also what happens without a word of the member that has them: it is gone, or its lock has ended.
"""

from __future__ import annotations

from kafkalog_broker.share.partition.in_flight_batch import InFlightBatch, Run
from kafkalog_broker.share.partition.record_state import TERMINAL, RecordState, released_state
from kafkalog_broker.share.partition.share_partition import NEVER, Limits, SharePartition
from kafkalog_broker.share.state.state_batches import StateBatch


class Change:
    """What became of records, not written yet. batches: to be written; empty: there is nothing to write.

    The start offset and the count to be written with it are those of the partition now.
    """

    def __init__(self, partition: SharePartition) -> None:
        self.batches: list[StateBatch] = []
        self._partition = partition
        self._complete = partition.complete
        self._before: dict[int, tuple[InFlightBatch, list[Run], bool]] = {}

    def touch(self, batch: InFlightBatch) -> None:
        """Before a batch is changed."""
        if id(batch) not in self._before:
            self._before[id(batch)] = batch, [run.copy() for run in batch.runs], batch.per_offset

    def note(self, run: Run) -> None:
        """After a run was changed."""
        self.batches.append(StateBatch(run.first, run.last, run.state, run.count))
        if run.state in TERMINAL:
            self._partition.complete += self._partition.offsets_from_start(run.first, run.last)

    def undo(self) -> None:
        """It could not be written, or was refused: as if it had not been."""
        self._partition.complete = self._complete
        for batch, runs, per_offset in self._before.values():
            batch.runs, batch.per_offset = runs, per_offset

    def done(self) -> bool:
        """It is written. Whether something can be acquired now that could not before."""
        for batch, _, _ in self._before.values():
            batch.join()
        is_free = any(batch.delivery_state == RecordState.AVAILABLE for batch in self.batches)
        if is_free:
            self._partition.search_again()
        return self._partition.settle() or is_free


def release(partition: SharePartition, member: str, limits: Limits) -> Change:
    """What the member has acquired can be acquired again; nobody is told that it failed."""
    return _freed(partition, [(batch, run) for batch, run in partition.acquired() if run.member == member], limits)


def expire(partition: SharePartition, now: int, limits: Limits) -> Change:
    """What was acquired for too long can be acquired again."""
    change = _freed(partition, [(batch, run) for batch, run in partition.acquired() if run.deadline <= now], limits)
    partition.next_deadline = min((run.deadline for _, run in partition.acquired()), default=NEVER)
    return change


def _freed(partition: SharePartition, found: list[tuple[InFlightBatch, Run]], limits: Limits) -> Change:
    """Runs that are acquired are so no more."""
    change = Change(partition)
    start = partition.start_offset
    for batch, run in found:
        change.touch(batch)
        if partition.is_cut_by_start(batch):
            batch.per_offset = True
        first, last = run.first, run.last
        for part in list(batch.between(first, min(last, start - 1))) if first < start else ():
            part.free(RecordState.ARCHIVED)
            change.note(part)
        for part in list(batch.between(max(first, start), last)):
            part.free(released_state(part.count, limits.max_deliveries))
            change.note(part)
    return change
