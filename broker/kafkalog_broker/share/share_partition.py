"""A share partition: one partition as one share group sees it (Kafka's SharePartition), as plain data and decisions.

Between `start_offset` and `end_offset` lie the records in flight; before are those that nobody gets any more, after
those that nobody has had. acquisition.py says who gets what. Times in ms of one clock that only rises.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import NamedTuple

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_settings import Limits
from kafkalog_broker.share.state_records import StateBatch


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
_first = attrgetter("first")  # key by which the runs of a batch are in order


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
    """The offsets [first, last], acquired together; `runs` cover them in order. With one state for all there is one
    run, acquired and acknowledged whole. Once a part of it is, each offset counts by itself (`per_offset`): Kafka keeps
    an object for each then, we keep runs."""

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

    def run_at(self, offset: int) -> Run:
        return self.runs[bisect_right(self.runs, offset, key=_first) - 1]

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
        at = bisect_right(self.runs, offset, key=_first) - 1
        run = self.runs[at]
        if run.first != offset:
            rest = run.copy()
            rest.first = offset
            run.last = offset - 1
            self.runs.insert(at + 1, rest)


NEVER = 1 << 62  # a deadline that does not come
_FEW_RUNS = 8  # runs of one acknowledgement that are looked up one by one


class Acknowledgement(NamedTuple):
    """Acknowledgement of [first, last]: a type for all offsets, or one for each."""

    first: int
    last: int
    types: Sequence[int]

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """(first, last, type) of offsets with the same type."""
        if len(self.types) == 1:
            yield self.first, self.last, self.types[0]
            return
        first = self.first
        for acknowledge_type, same in groupby(self.types):
            count = sum(1 for _ in same)
            yield first, first + count - 1, acknowledge_type
            first += count


class SharePartition:
    """start_offset: where delivery begins. batches: written state, in order; BrokerError if they contradict that."""

    def __init__(self, start_offset: int, batches: Iterable[StateBatch] = ()) -> None:
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.complete = 0  # offsets in flight that nobody gets again (Kafka's deliveryCompleteCount)
        self.batches: list[InFlightBatch] = []
        self._firsts: list[int] = []  # of the batches: a search in these costs a tenth less of an acknowledgement
        self._must_search = False  # True if something between start and end may be available
        self._gap: tuple[int, int] | None = None
        """(end when loaded, start of records unknown then): not all between loaded batches has been delivered."""
        self.next_deadline = NEVER  # no acquisition lock ends before
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
            self.add(InFlightBatch([run]))
            if run.is_terminal:
                self.complete += len(run)
        if self.batches:
            self._must_search = True
            self.end_offset = self.batches[-1].last
            if gap_start >= 0:
                self._gap = self.end_offset, gap_start
            self.settle()

    # what lies where

    @property
    def in_flight(self) -> int:
        """Offsets from start to end, delivered or not, as Kafka counts them."""
        return self.end_offset - self.start_offset + 1 if self.batches else 0

    @property
    def gap_start(self) -> int:
        """Where records begin that were not known when it was loaded; -1: there are none, or all were seen since."""
        return self._gap[1] if self._gap is not None and self._gap[0] == self.end_offset else -1

    def floor(self, offset: int) -> InFlightBatch | None:
        """The last batch that begins at `offset` or before."""
        at = bisect_right(self._firsts, offset)
        return self.batches[at - 1] if at else None

    def beginning_between(self, first: int, last: int) -> list[InFlightBatch]:
        return self.batches[bisect_left(self._firsts, first) : bisect_right(self._firsts, last)]

    def add(self, batch: InFlightBatch) -> None:
        at = bisect_left(self._firsts, batch.first)
        self._firsts.insert(at, batch.first)
        self.batches.insert(at, batch)

    def next_fetch_offset(self) -> int:
        """Where the next record lies that can be acquired, as far as that is known."""
        if not self.batches or self.start_offset > self.batches[-1].last:
            self._must_search = False
            return self.end_offset
        gap = self.gap_start
        has_gap = gap >= 0
        for batch in self.batches if self._must_search else ():
            if has_gap:
                if batch.first > gap:
                    return gap
                gap = max(batch.last + 1, gap)
            for run in batch.runs:
                if run.state is RecordState.AVAILABLE:
                    return run.first
        self._must_search = False
        return self.end_offset + 1

    def can_acquire(self, limits: Limits) -> bool:
        return self.next_fetch_offset() != self.end_offset + 1 or self.in_flight < limits.max_in_flight

    def search_again(self) -> None:
        self._must_search = True

    def gap_seen(self, offset: int) -> None:
        """Note that all before `offset` was acquired. The state loaded after it is known as well: Kafka lets the start
        wait before it until new records come."""
        if self._gap is not None:
            while (batch := self.floor(offset)) is not None and offset <= batch.last:
                offset = batch.last + 1
            loaded_end = self._gap[0]
            self._gap = (loaded_end, offset) if loaded_end == self.end_offset and offset <= loaded_end else None

    def is_cut_by_start(self, batch: InFlightBatch) -> bool:
        return batch.first < self.start_offset <= batch.last

    def offsets_from_start(self, first: int, last: int) -> int:
        return max(0, last - max(first, self.start_offset) + 1)

    # what happens to records

    def log_start_moved(self, log_start: int) -> None:
        """The log begins later now: what was available before is gone."""
        if log_start <= self.start_offset:
            return
        if not self.batches:
            self.start_offset = self.end_offset = log_start
            self.complete = 0
            return
        gone = sum(
            self.offsets_from_start(run.first, min(run.last, log_start - 1))
            for batch in self.batches
            if batch.first < log_start
            for run in batch.runs
            if run.is_terminal
        )
        if self.archive(self.start_offset, log_start - 1, self.batches, RecordState.AVAILABLE, count=False):
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
                    run.set_free(RecordState.ARCHIVED)
                    changed = True
                    if count:
                        self.complete += len(run)
            batch.merge_runs()
        return changed

    def settle(self) -> bool:
        """Let the start move over what nobody gets again. Whether it did."""
        batch = self.floor(self.start_offset)
        if batch is None or self.start_offset > batch.last or not batch.run_at(self.start_offset).is_terminal:
            return False
        done, complete = self._done()
        if done < 0:
            return False
        if done == self.batches[-1].last:
            self.start_offset = self.end_offset = done + 1
            self.batches.clear()
            self._firsts.clear()
            self.complete = 0
            return True
        gone = bisect_right(self._firsts, done) - 1
        if done == self.batches[gone].last:
            gone += 1
            self.start_offset = max(self.start_offset, self.batches[gone].first)
            if self.gap_start >= 0:
                self.start_offset = min(self.gap_start, self.start_offset)
        else:
            self.start_offset = max(self.start_offset, done + 1)
        self.complete -= complete
        del self.batches[:gone], self._firsts[:gone]
        return True

    def _done(self) -> tuple[int, int]:
        """The last offset up to which nobody gets anything again (-1: none), and how many of these count."""
        done, complete = -1, 0
        gap = self.gap_start
        for batch in self.batches:
            if 0 <= gap <= batch.last:
                break
            for run in batch.runs:
                if not run.is_terminal:
                    return done, complete
                done = run.last
                complete += self.offsets_from_start(run.first, run.last)
        return done, complete

    # changes that are to be written before they count

    def release(self, member: str, limits: Limits) -> StateChange:
        """Release the member's records; their delivery does not count as failed."""
        return self._release(lambda run: run.member == member, limits)

    def expire(self, now: int, limits: Limits) -> StateChange:
        change = self._release(lambda run: run.deadline <= now, limits)
        self.next_deadline = min((run.deadline for _, run in self._acquired()), default=NEVER)
        return change

    def _release(self, is_to_go: Callable[[Run], bool], limits: Limits) -> StateChange:
        change, start = StateChange(self), self.start_offset
        for batch, run in [(batch, run) for batch, run in self._acquired() if is_to_go(run)]:
            change.touch(batch)
            if self.is_cut_by_start(batch):
                batch.per_offset = True
            first, last = run.first, run.last
            for part in list(batch.between(first, min(last, start - 1))) if first < start else ():
                part.set_free(RecordState.ARCHIVED)
                change.note(part)
            for part in list(batch.between(max(first, start), last)):
                part.release(limits.max_deliveries)
                change.note(part)
        return change

    def _acquired(self) -> Iterator[tuple[InFlightBatch, Run]]:
        for batch in self.batches:
            for run in batch.runs:
                if run.state is RecordState.ACQUIRED:
                    yield batch, run

    def acknowledge(
        self, member: str, acknowledgements: Sequence[Acknowledgement], now: int, limits: Limits
    ) -> StateChange:
        """Raises BrokerError invalid_record_state or invalid_request, and then nothing of it counts."""
        change = StateChange(self)
        try:
            for acknowledgement in acknowledgements:
                if acknowledgement.last >= self.start_offset:
                    batches, runs = self._batches_of(acknowledgement), list(acknowledgement.runs())
                    for batch in batches:
                        if batch.last >= self.start_offset:
                            self._acknowledge(member, acknowledgement, runs, batch, now, limits, change)
        except BrokerError:
            change.undo()
            raise
        return change

    def _batches_of(self, acknowledgement: Acknowledgement) -> list[InFlightBatch]:
        first, last, _ = acknowledgement
        floor = self.floor(first)
        if floor is None and first < self.start_offset <= last:
            floor = self.floor(self.start_offset)
        if floor is None:
            raise _refused("Batch record not found. The request batch offsets are not found in the cache.")
        batches = self.beginning_between(floor.first, last)
        for offset, which in ((first, "first"), (last, "last")):
            if batches[-1].last < offset:
                raise BrokerError(
                    ErrorCode.invalid_request,
                    f"Batch record not found. The {which} offset in request is past acquired records.",
                )
        return batches

    def _acknowledge(
        self, member: str, acknowledgement: Acknowledgement, runs: Sequence[tuple[int, int, int]],
        batch: InFlightBatch, now: int, limits: Limits, change: StateChange,
    ) -> None:  # fmt: skip
        if not batch.per_offset:
            if batch.whole.member == NO_MEMBER:
                raise _refused("The batch cannot be acknowledged. The batch is not in the acquired state.")
            if batch.whole.member != member:
                raise _refused("Member is not the owner of batch record")
        change.touch(batch)
        first, last, types = acknowledgement
        is_whole = batch.is_within(first, last) and len(types) == 1 and not self.is_cut_by_start(batch)
        if is_whole and not batch.per_offset:
            if batch.whole.state is not RecordState.ACQUIRED:
                raise _refused("The batch cannot be acknowledged. The batch is not in the acquired state.")
            self._apply(batch.whole, types[0], now, limits, change)
            return
        if not batch.per_offset:
            if batch.whole.state is not RecordState.ACQUIRED:
                raise _refused("The batch cannot be acknowledged. The subset batch is not in the acquired state.")
            batch.per_offset = True
        lowest = max(batch.first, self.start_offset)
        begin = bisect_left(runs, lowest, key=itemgetter(1))
        runs_here = runs[begin : bisect_right(runs, batch.last, key=itemgetter(0))]
        for run, acknowledge_type in _runs_of(batch, runs_here, lowest):
            if run.state is not RecordState.ACQUIRED:
                raise _refused("The offset cannot be acknowledged. The offset is not acquired.")
            if run.member != member:
                raise _refused("Member is not the owner of offset")
            self._apply(run, acknowledge_type, now, limits, change)

    def _apply(self, run: Run, acknowledge_type: int, now: int, limits: Limits, change: StateChange) -> None:
        if acknowledge_type == AcknowledgeType.RENEW:
            if not limits.may_renew:
                raise _refused("Renewing acquisition locks is not enabled for the group.")
            run.deadline = now + limits.lock_ms
            self.next_deadline = min(self.next_deadline, run.deadline)
            return
        if acknowledge_type == AcknowledgeType.RELEASE:
            run.release(limits.max_deliveries)
        else:
            is_accepted = acknowledge_type == AcknowledgeType.ACCEPT
            run.set_free(RecordState.ACKNOWLEDGED if is_accepted else RecordState.ARCHIVED)
        change.note(run)


def _refused(what: str) -> BrokerError:
    return BrokerError(ErrorCode.invalid_record_state, what)


def _runs_of(
    batch: InFlightBatch, acknowledged: Sequence[tuple[int, int, int]], lowest: int
) -> Iterator[tuple[Run, int]]:
    """Runs of the batch with the type of their acknowledgement. A few are looked up, so that many acknowledgements of
    one batch do not go through all of its runs each; many are cut in one pass."""
    if len(acknowledged) <= _FEW_RUNS:
        for first, last, acknowledge_type in acknowledged:
            for run in batch.between(max(first, lowest), min(last, batch.last)):
                yield run, acknowledge_type
        return
    begin, end = max(acknowledged[0][0], lowest), acknowledged[-1][1]
    batch.cut_all([begin, *(first for first, _, _ in acknowledged[1:]), end + 1])
    runs = batch.between(begin, min(end, batch.last))
    next_run = next(runs, None)
    for _, last, acknowledge_type in acknowledged:
        while next_run is not None and next_run.first <= last:
            yield next_run, acknowledge_type
            next_run = next(runs, None)


class StateChange:
    """State changes of records, to be persisted: then `done`, or else undone. batches: to be written; empty: there is
    nothing to write. The start offset and the count to be written with it are those of the partition now."""

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
        if run.is_terminal:
            self._partition.complete += self._partition.offsets_from_start(run.first, run.last)

    def undo(self) -> None:
        """It could not be written, or was refused: as if it had not been."""
        self._partition.complete = self._complete
        for batch, runs, per_offset in self._before.values():
            batch.runs, batch.per_offset = runs, per_offset

    def done(self) -> bool:
        """It is written. Whether something can be acquired now that could not before."""
        for batch, _, _ in self._before.values():
            batch.merge_runs()
        is_free = any(batch.delivery_state == RecordState.AVAILABLE for batch in self.batches)
        if is_free:
            self._partition.search_again()
        return self._partition.settle() or is_free
