"""Changes of records in flight that are made in memory and not persisted yet."""

from __future__ import annotations

from dataclasses import dataclass

from kafkalog_broker.share.in_flight_batch import InFlightBatch, Run
from kafkalog_broker.share.record_state import RecordState
from kafkalog_broker.share.share_partition import SharePartition
from kafkalog_broker.share.share_state import StateBatch


class StateChange:
    """Changes that are made in memory. `commit` them after they are persisted; `rollback` if they cannot be persisted.

    `batches` are the state batches to persist, together with the partition's current start offset and delivery complete
    count. If `batches` is empty, nothing has to be persisted.
    """

    def __init__(self, partition: SharePartition) -> None:
        self.batches: list[StateBatch] = []
        self._partition = partition
        self._delivery_complete_count = partition.delivery_complete_count
        self._saved: dict[int, _SavedBatch] = {}

    def save(self, batch: InFlightBatch) -> None:
        """Save a batch for `rollback`, before it is changed."""
        if id(batch) not in self._saved:
            runs = [run.copy() for run in batch.runs]
            self._saved[id(batch)] = _SavedBatch(batch, runs, batch.has_offset_state)

    def add(self, run: Run) -> None:
        """Add a run, after its state was changed."""
        self.batches.append(StateBatch(run.first, run.last, run.state, run.delivery_count))
        if run.is_terminal:
            self._partition.delivery_complete_count += self._partition.count_from_start(run.first, run.last)

    def rollback(self) -> None:
        """Restore all saved batches."""
        self._partition.delivery_complete_count = self._delivery_complete_count
        for saved in self._saved.values():
            saved.batch.runs, saved.batch.has_offset_state = saved.runs, saved.has_offset_state

    def commit(self) -> bool:
        """Advance the start offset over the changed records.

        Returns:
            Whether records, or room for new ones, may have become available.
        """
        for saved in self._saved.values():
            saved.batch.merge_runs()
        has_available = any(batch.delivery_state == RecordState.AVAILABLE for batch in self.batches)
        if has_available:
            self._partition.reset_next_fetch_offset()
        return self._partition.advance_start_offset() or has_available


@dataclass(slots=True)
class _SavedBatch:
    """A batch, and its runs before the change."""

    batch: InFlightBatch
    runs: list[Run]
    has_offset_state: bool
