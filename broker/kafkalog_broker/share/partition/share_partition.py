"""A share partition: one partition as one share group sees it (Kafka's SharePartition), as plain data and decisions.

Between `start_offset` and `end_offset` lie the records in flight; before are those that nobody gets any more, after
those that nobody has had. `acquisition.py` says who gets
what, `acknowledgement.py` and `change.py` what becomes of it. Times in ms of one clock that only rises.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_context import Limits
from kafkalog_broker.share.partition.in_flight_batch import InFlightBatch, RecordState, Run
from kafkalog_broker.share.state.state_records import StateBatch

NEVER = 1 << 62
"""A deadline that does not come."""


class SharePartition:
    """start_offset: where delivery begins. batches: what was known of it, in order. Raises BrokerError for batches that
    contradict that."""

    def __init__(self, start_offset: int, batches: Iterable[StateBatch] = ()) -> None:
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.complete = 0
        """Offsets in flight that nobody gets again (Kafka's deliveryCompleteCount)."""
        self._firsts: list[int] = []
        self._batches: list[InFlightBatch] = []
        self._must_search = False
        """True if something between start and end may be available."""
        self._gap: tuple[int, int] | None = None
        """(end offset when it was loaded, where records begin that were not known then): not all that lies between
        loaded batches has been delivered."""
        self.next_deadline = NEVER
        """No acquisition lock ends before."""
        self._load(batches)

    def _load(self, batches: Iterable[StateBatch]) -> None:
        gap_start, before = -1, self.start_offset - 1
        for first, last, state, count in batches:
            if first <= before or last < first:
                raise BrokerError(
                    ErrorCode.unknown_server_error,
                    f"the state of a share partition that begins at {self.start_offset} has a batch {first}-{last} "
                    f"after offset {before}",
                )
            if gap_start < 0 and first > before + 1:
                gap_start = before + 1
            before = last
            run = Run(first, last, RecordState(state), count)
            self._append(InFlightBatch([run]))
            if run.is_terminal:
                self.complete += len(run)
        if self._batches:
            self._must_search = True
            self.end_offset = self._batches[-1].last
            if gap_start >= 0:
                self._gap = self.end_offset, gap_start
            self.settle()

    # what lies where

    @property
    def in_flight(self) -> int:
        """Offsets from start to end, delivered or not, as Kafka counts them."""
        return self.end_offset - self.start_offset + 1 if self._batches else 0

    @property
    def batches(self) -> list[InFlightBatch]:
        return self._batches

    @property
    def gap_start(self) -> int:
        """Where records begin that were not known when it was loaded; -1: there are none, or all were seen since."""
        return self._gap[1] if self._gap is not None and self._gap[0] == self.end_offset else -1

    def floor(self, offset: int) -> InFlightBatch | None:
        """The last batch that begins at `offset` or before."""
        at = bisect_right(self._firsts, offset)
        return self._batches[at - 1] if at else None

    def beginning_between(self, first: int, last: int) -> list[InFlightBatch]:
        return self._batches[bisect_left(self._firsts, first) : bisect_right(self._firsts, last)]

    def add(self, batch: InFlightBatch) -> None:
        """A new batch, at the end or in a gap."""
        if not self._firsts or batch.first > self._firsts[-1]:
            self._append(batch)
            return
        at = bisect_left(self._firsts, batch.first)
        self._firsts.insert(at, batch.first)
        self._batches.insert(at, batch)

    def _append(self, batch: InFlightBatch) -> None:
        self._firsts.append(batch.first)
        self._batches.append(batch)

    def next_fetch_offset(self) -> int:
        """Where the next record lies that can be acquired, as far as that is known."""
        if not self._batches or self.start_offset > self._batches[-1].last:
            self._must_search = False
            return self.end_offset
        if self._must_search:
            found = self._first_available()
            if found is not None:
                return found
            self._must_search = False
        return self.end_offset + 1

    def _first_available(self) -> int | None:
        gap = self.gap_start
        has_gap = gap >= 0
        for batch in self._batches:
            if has_gap:
                if batch.first > gap:
                    return gap
                gap = max(batch.last + 1, gap)
            for run in batch.runs:
                if run.state is RecordState.AVAILABLE:
                    return run.first
        return None

    def can_acquire(self, limits: Limits) -> bool:
        return self.next_fetch_offset() != self.end_offset + 1 or self.in_flight < limits.max_in_flight

    def search_again(self) -> None:
        """Something became available."""
        self._must_search = True

    def gap_seen(self, offset: int) -> None:
        """Note that all before `offset` was acquired. The state loaded after it is known as well: Kafka lets the start
        wait before it until new records come."""
        if self._gap is not None:
            while (known := self.floor(offset)) is not None and offset <= known.last:
                offset = known.last + 1
            loaded_end = self._gap[0]
            self._gap = (loaded_end, offset) if loaded_end == self.end_offset and offset <= loaded_end else None

    def is_cut_by_start(self, batch: InFlightBatch) -> bool:
        """True if the start lies inside the batch."""
        return batch.first < self.start_offset <= batch.last

    def offsets_from_start(self, first: int, last: int) -> int:
        return max(0, last - max(first, self.start_offset) + 1)

    # what happens to records

    def acquired(self) -> Iterator[tuple[InFlightBatch, Run]]:
        for batch in self._batches:
            for run in batch.runs:
                if run.state is RecordState.ACQUIRED:
                    yield batch, run

    def log_start_moved(self, log_start: int) -> None:
        """The log begins later now: what was available before is gone."""
        if log_start <= self.start_offset:
            return
        if not self._batches:
            self.start_offset = self.end_offset = log_start
            self.complete = 0
            return
        gone = sum(
            self.offsets_from_start(run.first, min(run.last, log_start - 1))
            for batch in self._batches
            if batch.first < log_start
            for run in batch.runs
            if run.is_terminal
        )
        if self.archive(self.start_offset, log_start - 1, self._batches, RecordState.AVAILABLE, count=False):
            self._must_search = True
        self.start_offset = log_start
        self.complete -= gone
        self.end_offset = max(self.end_offset, log_start)

    def archive(
        self, first: int, last: int, batches: Iterable[InFlightBatch], state: RecordState, *, count: bool = True
    ) -> bool:
        """Offsets of `batches` in [first, last] that are in `state` are given to nobody any more."""
        changed = False
        for batch in batches:
            if batch.first > last:
                break
            if not batch.is_within(first, last) and not batch.per_offset:
                if batch.whole.state is not state:
                    continue
                batch.per_offset = True
            for run in batch.between(max(first, batch.first), min(last, batch.last)):
                if run.state is state:
                    run.free(RecordState.ARCHIVED)
                    changed = True
                    if count:
                        self.complete += len(run)
            batch.join()
        return changed

    def settle(self) -> bool:
        """Let the start move over what nobody gets again. Whether it did."""
        if not self._can_move_start():
            return False
        done, complete = self._done()
        if done < 0:
            return False
        if done == self._batches[-1].last:
            self.start_offset = self.end_offset = done + 1
            self._firsts.clear()
            self._batches.clear()
            self.complete = 0
            return True
        at = bisect_right(self._firsts, done) - 1
        gone = at
        if done == self._batches[at].last:
            gone = at + 1
            self.start_offset = max(self.start_offset, self._firsts[gone])
            if self.gap_start >= 0:
                self.start_offset = min(self.gap_start, self.start_offset)
        else:
            self.start_offset = max(self.start_offset, done + 1)
        self.complete -= complete
        del self._firsts[:gone]
        del self._batches[:gone]
        return True

    def _can_move_start(self) -> bool:
        batch = self.floor(self.start_offset)
        return batch is not None and self.start_offset <= batch.last and batch.run_at(self.start_offset).is_terminal

    def _done(self) -> tuple[int, int]:
        """The last offset up to which nobody gets anything again (-1: none), and how many of these count."""
        done, complete = -1, 0
        gap = self.gap_start
        for batch in self._batches:
            if 0 <= gap <= batch.last:
                break
            for run in batch.runs:
                if not run.is_terminal:
                    return done, complete
                done = run.last
                complete += self.offsets_from_start(run.first, run.last)
        return done, complete
