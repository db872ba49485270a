"""Batches of records in flight, with a state for each of their offsets (Kafka's InFlightBatch and InFlightState)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter

from kafkalog_broker.share.record_state import NEXT_STATES, TERMINAL_STATES, RecordState

NO_MEMBER = ""

_first_offset = attrgetter("first")  # sort key of the runs of a batch


@dataclass(slots=True, eq=False)
class Run:
    """The offsets [first, last], which have the same state, delivery count and acquisition lock.

    `member_id` and `lock_deadline` (ms) are those of the acquisition lock, while the state is ACQUIRED.
    """

    first: int
    last: int
    state: RecordState
    delivery_count: int
    member_id: str = NO_MEMBER
    lock_deadline: int = 0

    def copy(self) -> Run:
        return Run(self.first, self.last, self.state, self.delivery_count, self.member_id, self.lock_deadline)

    def __len__(self) -> int:
        return self.last - self.first + 1

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL_STATES

    def acquire(self, member_id: str, lock_deadline: int) -> None:
        """Deliver the records to a member, which counts as a delivery."""
        if RecordState.ACQUIRED not in NEXT_STATES[self.state]:
            raise self._invalid_transition(RecordState.ACQUIRED)
        self.state = RecordState.ACQUIRED
        self.member_id, self.lock_deadline = member_id, lock_deadline
        self.delivery_count += 1

    def release(self, max_deliveries: int) -> None:
        """Make the records available again; archive them if they were delivered `max_deliveries` times."""
        self.unlock(RecordState.ARCHIVED if self.delivery_count >= max_deliveries else RecordState.AVAILABLE)

    def unlock(self, state: RecordState) -> None:
        """Change the state to one without an acquisition lock."""
        if state not in NEXT_STATES[self.state]:
            raise self._invalid_transition(state)
        self.state = state
        self.member_id = NO_MEMBER
        self.lock_deadline = 0

    def _invalid_transition(self, state: RecordState) -> ValueError:
        return ValueError(f"offsets {self.first} to {self.last}: {state.name} cannot follow {self.state.name}")


class InFlightBatch:
    """The offsets [first, last], which were acquired together. `runs` cover them without gaps, in order.

    At first the batch has one run (`whole`): all offsets have one state and are acquired and acknowledged together.
    After a part of them has changed, each offset has its own state (`has_offset_state`). Kafka then keeps an object for
    each offset; here neighbouring offsets in the same state share a run.
    """

    __slots__ = ("first", "has_offset_state", "last", "runs")

    def __init__(self, runs: list[Run], *, has_offset_state: bool = False) -> None:
        self.first = runs[0].first
        self.last = runs[-1].last
        self.runs = runs
        self.has_offset_state = has_offset_state

    @property
    def whole(self) -> Run:
        """The only run of a batch without offset states."""
        return self.runs[0]

    def is_within(self, first: int, last: int) -> bool:
        return self.first >= first and self.last <= last

    def run_at(self, offset: int) -> Run:
        return self.runs[bisect_right(self.runs, offset, key=_first_offset) - 1]

    def runs_between(self, first: int, last: int) -> Iterator[Run]:
        """Yield the runs of [first, last], after splitting runs at both ends. The caller may change their states."""
        self._split(first)
        self._split(last + 1)
        at = bisect_right(self.runs, first - 1, key=_first_offset)
        while at < len(self.runs) and self.runs[at].first <= last:
            yield self.runs[at]
            at += 1

    def split_at(self, offsets: Iterable[int]) -> None:
        """Split runs so that one begins at each of `offsets`, which must be ascending. Takes one pass over the runs."""
        runs: list[Run] = []
        splits = iter(offsets)
        split = next(splits, None)
        for run in self.runs:
            while split is not None and split <= run.last:
                if split > run.first:
                    rest = run.copy()
                    rest.first = split
                    run.last = split - 1
                    runs.append(run)
                    run = rest
                split = next(splits, None)
            runs.append(run)
        self.runs = runs

    def merge_runs(self) -> None:
        """Merge neighbouring runs that differ in their offsets only."""
        merged = [self.runs[0]]
        for run in self.runs[1:]:
            previous = merged[-1]
            if (run.state, run.delivery_count, run.member_id, run.lock_deadline) == (
                previous.state, previous.delivery_count, previous.member_id, previous.lock_deadline
            ):  # fmt: skip
                previous.last = run.last
            else:
                merged.append(run)
        self.runs = merged

    def _split(self, offset: int) -> None:
        if not self.first < offset <= self.last:
            return
        at = bisect_right(self.runs, offset, key=_first_offset) - 1
        run = self.runs[at]
        if run.first != offset:
            rest = run.copy()
            rest.first = offset
            run.last = offset - 1
            self.runs.insert(at + 1, rest)
