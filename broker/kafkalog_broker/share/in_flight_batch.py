"""Offsets in flight that were acquired together (InFlightBatch), as runs of offsets with the same state.

As long as all of them have one state the batch is one thing: it is acquired and acknowledged whole. Once a part of it
is, each offset counts by itself (`per_offset`); Kafka keeps an object for each then, we keep runs.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter


class RecordState(enum.IntEnum):
    """State of a record in flight, as records of __share_group_state number it. Acquired records are never written."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


TERMINAL = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})  # nobody gets such a record again


class AcknowledgeType(enum.IntEnum):
    """GAP: there is no record at the offset."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


NO_MEMBER = ""
first_offset = attrgetter("first")  # key by which runs and batches are in order


@dataclass(slots=True, eq=False)
class Run:
    """The offsets [first, last], delivered `count` times. `deadline` (ms): when their acquisition lock ends."""

    first: int
    last: int
    state: RecordState
    count: int
    member: str = NO_MEMBER
    deadline: int = 0

    def copy(self) -> Run:
        return Run(self.first, self.last, self.state, self.count, self.member, self.deadline)

    def __len__(self) -> int:
        return self.last - self.first + 1

    def set_free(self, state: RecordState) -> None:
        """Nobody holds it any more."""
        self.state, self.member, self.deadline = state, NO_MEMBER, 0

    def release(self, max_deliveries: int) -> None:
        """Make it available, unless it has been delivered as often as it may be."""
        self.set_free(RecordState.ARCHIVED if self.count >= max_deliveries else RecordState.AVAILABLE)

    def acquire(self, member: str, deadline: int) -> None:
        self.state, self.member, self.deadline = RecordState.ACQUIRED, member, deadline
        self.count += 1

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL


class InFlightBatch:
    """The offsets [first, last]; `runs` cover them in order. Not `per_offset`: there is one run."""

    __slots__ = ("first", "last", "per_offset", "runs")

    def __init__(self, runs: list[Run], *, per_offset: bool = False) -> None:
        self.first = runs[0].first
        self.last = runs[-1].last
        self.runs = runs
        self.per_offset = per_offset

    @property
    def whole(self) -> Run:
        """The one run of a batch that is not `per_offset`."""
        return self.runs[0]

    def is_within(self, first: int, last: int) -> bool:
        return self.first >= first and self.last <= last

    def between(self, first: int, last: int) -> Iterator[Run]:
        """The runs of [first, last], cut at these offsets. They may be changed while they are looked at."""
        self._cut(first)
        self._cut(last + 1)
        at = bisect_right(self.runs, first - 1, key=first_offset)
        while at < len(self.runs) and self.runs[at].first <= last:
            yield self.runs[at]
            at += 1

    def cut_all(self, offsets: Iterable[int]) -> None:
        """Let runs begin at these offsets, which rise: in one pass, however many they are."""
        runs: list[Run] = []
        cuts = iter(offsets)
        cut = next(cuts, None)
        for run in self.runs:
            while cut is not None and cut <= run.last:
                if cut > run.first:
                    rest = run.copy()
                    rest.first, run.last = cut, cut - 1
                    runs.append(run)
                    run = rest
                cut = next(cuts, None)
            runs.append(run)
        self.runs = runs

    def take(self, run: Run, count: int) -> Run:
        """The first `count` offsets of a run, as a run of its own."""
        self._cut(run.first + count)
        return self.run_at(run.first)

    def run_at(self, offset: int) -> Run:
        return self.runs[bisect_right(self.runs, offset, key=first_offset) - 1]

    def merge_runs(self) -> None:
        """Merge neighbours that differ in their offsets only."""
        merged = [self.runs[0]]
        for run in self.runs[1:]:
            before = merged[-1]
            if (run.state, run.count, run.member, run.deadline) == (
                before.state, before.count, before.member, before.deadline
            ):  # fmt: skip
                before.last = run.last
            else:
                merged.append(run)
        self.runs = merged

    def _cut(self, offset: int) -> None:
        if not self.first < offset <= self.last:
            return
        at = bisect_right(self.runs, offset, key=first_offset) - 1
        run = self.runs[at]
        if run.first != offset:
            rest = run.copy()
            rest.first = offset
            run.last = offset - 1
            self.runs.insert(at + 1, rest)
