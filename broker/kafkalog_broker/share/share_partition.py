"""A share partition: the records in flight of one topic partition for one share group (Kafka's SharePartition).

The records in flight have offsets from `start_offset` to `end_offset`. Earlier records are not delivered any more,
later records have not been delivered yet. `acquisition.py` acquires records for a member; `acknowledgement.py` and
`lock_release.py` change the state of acquired records. These modules do no I/O. Times are ms of a monotonic clock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_settings import Limits
from kafkalog_broker.share.in_flight_batch import InFlightBatch, Run
from kafkalog_broker.share.record_state import TERMINAL_STATES, RecordState
from kafkalog_broker.share.share_state import StateBatch

NEVER = 1 << 62  # deadline of a lock that does not exist


class SharePartition:
    """The records in flight of a share partition. Not thread-safe.

    Attributes:
        start_offset: First offset in flight, or the first one to deliver if none is.
        end_offset: Last offset in flight, or `start_offset` if none is.
        batches: The batches in flight in offset order, without overlaps; changed only by methods.
        delivery_complete_count: Number of offsets from `start_offset` on whose state is terminal.
        next_lock_deadline: No acquisition lock expires before this time.
    """

    def __init__(self, start_offset: int, batches: Iterable[StateBatch] = ()) -> None:
        """Create from a persisted state.

        Args:
            start_offset: The first offset that may be delivered.
            batches: Persisted batches in offset order.

        Raises:
            BrokerError: unknown_server_error, if the batches overlap or begin before `start_offset`.
        """
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.delivery_complete_count = 0
        self.batches: list[InFlightBatch] = []
        self.next_lock_deadline = NEVER
        # First offset of each batch, because bisecting a list of integers is measurably faster than with a key.
        self._first_offsets: list[int] = []
        self._may_have_available = False  # whether a record in flight, or the loaded gap, may be available
        self._loaded_gap: _LoadedGap | None = None
        self._load(batches)

    def _load(self, batches: Iterable[StateBatch]) -> None:
        gap_start: int | None = None
        previous_last = self.start_offset - 1
        for first, last, state, delivery_count in batches:
            if first <= previous_last or last < first:
                raise BrokerError(
                    ErrorCode.unknown_server_error,
                    f"the state of a share partition that begins at {self.start_offset} has a batch {first}-{last} "
                    f"after offset {previous_last}",
                )
            if gap_start is None and first > previous_last + 1:
                gap_start = previous_last + 1
            previous_last = last
            run = Run(first, last, RecordState(state), delivery_count)
            self.add_batch(InFlightBatch([run]))
            if run.is_terminal:
                self.delivery_complete_count += len(run)
        if self.batches:
            self._may_have_available = True
            self.end_offset = self.batches[-1].last
            if gap_start is not None:
                self._loaded_gap = _LoadedGap(self.end_offset, gap_start)
            self.advance_start_offset()

    @property
    def in_flight_count(self) -> int:
        """Number of offsets from start to end offset in any state, as Kafka counts them."""
        return self.end_offset - self.start_offset + 1 if self.batches else 0

    @property
    def gap_start(self) -> int | None:
        """First offset whose state was unknown when the state was loaded and has not been determined since; None if
        there is none."""
        gap = self._loaded_gap
        return gap.start if gap is not None and gap.loaded_end_offset == self.end_offset else None

    def floor_batch(self, offset: int) -> InFlightBatch | None:
        """Return the last batch that begins at or before `offset`."""
        at = bisect_right(self._first_offsets, offset)
        return self.batches[at - 1] if at else None

    def batches_starting_in(self, first: int, last: int) -> list[InFlightBatch]:
        """Return the batches whose first offset is in [first, last]."""
        return self.batches[bisect_left(self._first_offsets, first) : bisect_right(self._first_offsets, last)]

    def acquired_runs(self) -> Iterator[tuple[InFlightBatch, Run]]:
        """Yield the acquired runs, each with its batch."""
        for batch in self.batches:
            for run in batch.runs:
                if run.state is RecordState.ACQUIRED:
                    yield batch, run

    def next_fetch_offset(self) -> int:
        """Return the offset at which a fetch should begin: the first one that may be acquired."""
        if not self.batches or self.start_offset > self.batches[-1].last:
            self._may_have_available = False
            return self.end_offset
        gap_start = self.gap_start
        for batch in self.batches if self._may_have_available else ():
            if gap_start is not None:
                if batch.first > gap_start:
                    return gap_start
                gap_start = max(batch.last + 1, gap_start)
            for run in batch.runs:
                if run.state is RecordState.AVAILABLE:
                    return run.first
        self._may_have_available = False
        return self.end_offset + 1

    def can_acquire(self, limits: Limits) -> bool:
        """Return whether records in flight are available, or there is room for more records in flight."""
        return self.next_fetch_offset() != self.end_offset + 1 or self.in_flight_count < limits.max_in_flight

    def begins_within(self, batch: InFlightBatch) -> bool:
        """Return whether the start offset is inside of `batch`, after its first offset."""
        return batch.first < self.start_offset <= batch.last

    def count_from_start(self, first: int, last: int) -> int:
        """Return how many offsets of [first, last] are at or after the start offset."""
        if first >= self.start_offset:
            return last - first + 1
        return max(0, last - self.start_offset + 1)

    def add_batch(self, batch: InFlightBatch) -> None:
        at = bisect_left(self._first_offsets, batch.first)
        self._first_offsets.insert(at, batch.first)
        self.batches.insert(at, batch)

    def reset_next_fetch_offset(self) -> None:
        """Let `next_fetch_offset` search the records in flight again, because some became available."""
        self._may_have_available = True

    def shrink_gap(self, offset: int) -> None:
        """Note that all offsets of the loaded gap before `offset` have been acquired.

        Batches that were loaded directly after `offset` are skipped. In Kafka the start offset does not advance over
        them before new records arrive.
        """
        if self._loaded_gap is not None:
            while (batch := self.floor_batch(offset)) is not None and offset <= batch.last:
                offset = batch.last + 1
            loaded_end = self._loaded_gap.loaded_end_offset
            has_gap = loaded_end == self.end_offset and offset <= loaded_end
            self._loaded_gap = _LoadedGap(loaded_end, offset) if has_gap else None

    def advance_to_log_start(self, log_start: int) -> None:
        """Archive the available records before a new log start offset, and advance the start offset to it."""
        if log_start <= self.start_offset:
            return
        if not self.batches:
            self.start_offset = self.end_offset = log_start
            self.delivery_complete_count = 0
            return
        already_complete = sum(
            self.count_from_start(run.first, min(run.last, log_start - 1))
            for batch in self.batches
            if batch.first < log_start
            for run in batch.runs
            if run.is_terminal
        )
        if self._archive(self.start_offset, log_start - 1, self.batches, RecordState.AVAILABLE):
            self._may_have_available = True
        self.start_offset = log_start
        self.delivery_complete_count -= already_complete
        self.end_offset = max(self.end_offset, log_start)

    def archive(self, first: int, last: int, batches: Iterable[InFlightBatch], state: RecordState) -> bool:
        """Archive the offsets of `batches` that are in [first, last] and in `state`.

        Returns:
            Whether any offset was archived.
        """
        archived = self._archive(first, last, batches, state)
        self.delivery_complete_count += archived
        return archived > 0

    def _archive(self, first: int, last: int, batches: Iterable[InFlightBatch], state: RecordState) -> int:
        """Archive without counting the offsets as complete; return their number."""
        archived = 0
        for batch in batches:
            if batch.first > last:
                break
            if not batch.is_within(first, last) and not batch.has_offset_state:
                if batch.whole.state is not state:
                    continue
                batch.has_offset_state = True
            for run in batch.runs_between(max(first, batch.first), min(last, batch.last)):
                if run.state is state:
                    run.unlock(RecordState.ARCHIVED)
                    archived += len(run)
            batch.merge_runs()
        return archived

    def advance_start_offset(self) -> bool:
        """Advance the start offset over records in a terminal state, and drop the batches before the new start offset.

        Kafka: `SharePartition.maybeUpdateCachedStateAndOffsets`.

        Returns:
            Whether the start offset advanced.
        """
        first_batch = self.floor_batch(self.start_offset)
        if (
            first_batch is None
            or self.start_offset > first_batch.last
            or not first_batch.run_at(self.start_offset).is_terminal
        ):
            return False
        prefix = self._complete_prefix()
        if prefix is None:
            return False
        if prefix.last_offset == self.batches[-1].last:
            self.start_offset = self.end_offset = prefix.last_offset + 1
            self.batches.clear()
            self._first_offsets.clear()
            self.delivery_complete_count = 0
            return True
        dropped = bisect_right(self._first_offsets, prefix.last_offset) - 1
        if prefix.last_offset == self.batches[dropped].last:
            dropped += 1
            self.start_offset = max(self.start_offset, self.batches[dropped].first)
            if self.gap_start is not None:
                self.start_offset = min(self.gap_start, self.start_offset)
        else:
            self.start_offset = max(self.start_offset, prefix.last_offset + 1)
        self.delivery_complete_count -= prefix.count
        del self.batches[:dropped], self._first_offsets[:dropped]
        return True

    def _complete_prefix(self) -> _CompletePrefix | None:
        """Return the records in a terminal state before the first other record or gap; None if there are none."""
        last_offset: int | None = None
        count = 0
        gap_start = self.gap_start
        for batch in self.batches:
            if gap_start is not None and gap_start <= batch.last:
                break
            for run in batch.runs:
                if run.state not in TERMINAL_STATES:
                    return None if last_offset is None else _CompletePrefix(last_offset, count)
                last_offset = run.last
                count += self.count_from_start(run.first, run.last)
        return None if last_offset is None else _CompletePrefix(last_offset, count)


@dataclass(frozen=True, slots=True)
class _LoadedGap:
    """Offsets between the loaded batches whose state is unknown, because they were not persisted.

    `start` is the first of them that has not been acquired since. `loaded_end_offset` is the end offset of the loaded
    state: after the end offset has advanced, the gap is over.
    """

    loaded_end_offset: int
    start: int


@dataclass(frozen=True, slots=True)
class _CompletePrefix:
    """Last offset of the records, and the number of those from the start offset on."""

    last_offset: int
    count: int
