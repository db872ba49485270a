"""Offsets in flight that were acquired together (InFlightBatch), as runs of offsets with the same state.

As long as all of them have one state the batch is one thing: it is acquired and acknowledged whole. Once a part of it
is, each offset counts by itself (`per_offset`); Kafka keeps an object for each then, we keep runs.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping

# The states of a record that is in flight, and what acknowledging it makes of it (RecordState, AcknowledgeType).


class RecordState(enum.IntEnum):
    """As records of __share_group_state and state batches number them. Acquired records are never written."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


TERMINAL = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})
"""Nobody gets such a record again."""


class AcknowledgeType(enum.IntEnum):
    """GAP: there is no record at the offset."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


AFTER: Mapping[int, RecordState] = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
}
"""State of an acquired record after an acknowledgement. RENEW leaves it acquired, for longer."""


def released_state(delivery_count: int, limit: int) -> RecordState:
    """State of a record that is released."""
    return RecordState.ARCHIVED if delivery_count >= limit else RecordState.AVAILABLE


NO_MEMBER = ""


class Run:
    """The offsets [first, last], delivered `count` times. `deadline` (ms): when their acquisition lock ends."""

    __slots__ = ("count", "deadline", "first", "last", "member", "state")

    def __init__(
        self, first: int, last: int, state: RecordState, count: int, member: str = NO_MEMBER, deadline: int = 0
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.count = count
        self.member = member
        self.deadline = deadline

    def copy(self) -> Run:
        return Run(self.first, self.last, self.state, self.count, self.member, self.deadline)

    def __len__(self) -> int:
        return self.last - self.first + 1

    def free(self, state: RecordState) -> None:
        """Nobody holds it any more."""
        self.state, self.member, self.deadline = state, NO_MEMBER, 0

    def acquired_by(self, member: str, deadline: int) -> None:
        self.state, self.member, self.deadline = RecordState.ACQUIRED, member, deadline
        self.count += 1

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL

    def is_like(self, other: Run) -> bool:
        return (
            self.state is other.state
            and self.count == other.count
            and self.member == other.member
            and self.deadline == other.deadline
        )


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
        at = bisect_right(self.runs, first - 1, key=_first)
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
        return self.runs[bisect_right(self.runs, run.first, key=_first) - 1]

    def run_at(self, offset: int) -> Run:
        return self.runs[bisect_right(self.runs, offset, key=_first) - 1]

    def join(self) -> None:
        """Neighbours that are alike become one run."""
        joined = [self.runs[0]]
        for run in self.runs[1:]:
            if run.is_like(joined[-1]):
                joined[-1].last = run.last
            else:
                joined.append(run)
        self.runs = joined

    def _cut(self, offset: int) -> None:
        if not self.first < offset <= self.last:
            return
        at = bisect_right(self.runs, offset, key=_first) - 1
        run = self.runs[at]
        if run.first != offset:
            rest = run.copy()
            rest.first = offset
            run.last = offset - 1
            self.runs.insert(at + 1, rest)


def _first(run: Run) -> int:
    return run.first
