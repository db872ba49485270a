"""Who gets which records of a share partition (SharePartition.acquire)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby
from math import ceil
from operator import itemgetter
from typing import NamedTuple

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_context import Limits
from kafkalog_broker.share.partition.in_flight_batch import (
    AFTER,
    NO_MEMBER,
    TERMINAL,
    AcknowledgeType,
    InFlightBatch,
    RecordState,
    Run,
    released_state,
)
from kafkalog_broker.share.partition.share_partition import NEVER, SharePartition
from kafkalog_broker.share.state.state_records import StateBatch

_FEWEST_BEFORE_THROTTLING = 2
"""Records delivered that often are given a few at a time: one of them may be what makes consumers fail."""


class Span(NamedTuple):
    """The offsets of one batch of the log."""

    first: int
    last: int


class Acquired(NamedTuple):
    """Offsets that a member has acquired, delivered to somebody for the `delivery_count`th time."""

    first: int
    last: int
    delivery_count: int


class Wanted(NamedTuple):
    """Bounds of an acquisition. spans: the batches of the log from `fetch_offset` on. max_records: soft unless
    `strictly`, where not even a batch may be given beyond (share.acquire.mode=record_limit). batch_size: how many
    offsets are kept as one batch."""

    member: str
    fetch_offset: int
    spans: Sequence[Span]
    max_records: int
    batch_size: int
    now: int
    strictly: bool = False


def acquire(partition: SharePartition, wanted: Wanted, limits: Limits) -> list[Acquired]:
    """Acquire records for the member, in offset order, until it acknowledges or releases them or the lock ends."""
    return _Acquiring(partition, wanted, limits).run()


class _Acquiring:
    def __init__(self, partition: SharePartition, wanted: Wanted, limits: Limits) -> None:
        self._partition = partition
        self._wanted = wanted
        self._limits = limits
        self._deadline = wanted.now + limits.lock_ms
        self._throttled_from = max(_FEWEST_BEFORE_THROTTLING, ceil(limits.max_deliveries / 2))
        self._result: list[Acquired] = []
        self._count = 0

    def run(self) -> list[Acquired]:
        partition, wanted = self._partition, self._wanted
        spans = wanted.spans
        if not spans or wanted.max_records <= 0 or spans[-1].last < partition.start_offset:
            return []
        base = spans[0].first
        self._archive_what_is_gone(base)  # which may make room
        last, most = self._bounds(spans[-1].last)
        if most <= 0 or last < max(base, partition.start_offset):
            return []
        floor = partition.floor(base)
        if floor is None:
            base = max(base, partition.start_offset)
        elif floor.last >= base:
            base = floor.first
        found = partition.beginning_between(min(spans[0].first, base), last)
        if found:
            self._acquire_among(found, base, last, most)
        else:
            self._acquire_new(base, last, most)
        if self._result:
            partition.next_deadline = min(partition.next_deadline, self._deadline)
        return self._result

    def _bounds(self, last: int) -> tuple[int, int]:
        """(the last offset that may be acquired, how many records)"""
        partition, wanted = self._partition, self._wanted
        most = min(wanted.max_records, self._limits.max_in_flight - partition.in_flight)
        if most <= 0 and wanted.fetch_offset <= partition.end_offset:  # no new ones, but those given back
            most = min(wanted.max_records, partition.end_offset - wanted.fetch_offset + 1)
            last = min(last, partition.end_offset)
        return last, most

    def _archive_what_is_gone(self, base: int) -> None:
        """Offsets between the one asked for and the first batch of the log are compacted away."""
        partition, offset = self._partition, self._wanted.fetch_offset
        if offset >= base or not partition.batches:
            return
        floor = partition.floor(offset)
        first = floor.first if floor is not None and floor.last >= offset else offset
        stale = partition.beginning_between(first, base - 1)
        if partition.archive(offset, base - 1, stale, RecordState.AVAILABLE):
            partition.search_again()
            partition.settle()

    def _acquire_among(self, found: list[InFlightBatch], base: int, last: int, most: int) -> None:
        partition, first_wanted = self._partition, self._wanted.spans[0].first
        gap_from = base
        for batch in found:
            if self._count >= most:
                break
            if partition.gap_start >= 0:
                if gap_from < batch.first:
                    self._acquire_new(gap_from, batch.first - 1, most - self._count)
                gap_from = batch.last + 1
                if self._count >= most:
                    break
            is_throttled = self._is_throttled(batch, first_wanted, last)
            if is_throttled and self._count:
                most = 0  # it comes alone, with the next fetch
                break
            is_part = self._wanted.strictly and batch.last - batch.first + 1 > most - self._count
            if batch.is_within(first_wanted, last) and not (batch.per_offset or is_part or is_throttled):
                self._acquire_whole(batch)
                continue
            if not batch.per_offset:
                if batch.whole.state is not RecordState.AVAILABLE:
                    continue
                batch.per_offset = True
            if self._acquire_part(batch, first_wanted, last, most - self._count) and is_throttled:
                most = 0
                break
        if self._count < most and found[-1].last < last:
            self._acquire_new(found[-1].last + 1, last, most - self._count)
        if self._result:
            partition.gap_seen(self._result[-1].last + 1)

    def _is_throttled(self, batch: InFlightBatch, first: int, last: int) -> bool:
        return any(
            run.state is RecordState.AVAILABLE
            and run.count >= self._throttled_from
            and (not batch.per_offset or (run.last >= first and run.first <= last))
            for run in batch.runs
        )

    def _acquire_whole(self, batch: InFlightBatch) -> None:
        run = batch.whole
        if run.state is RecordState.AVAILABLE:
            run.acquired_by(self._wanted.member, self._deadline)
            self._result.append(Acquired(run.first, run.last, run.count))
            self._count += len(run)

    def _acquire_part(self, batch: InFlightBatch, first: int, last: int, most: int) -> int:
        """Available offsets in [first, last]; how many."""
        acquired, most_throttled, limit = 0, -1, self._limits.max_deliveries
        mine: list[Acquired] = []
        size = batch.last - batch.first + 1
        for run in batch.between(max(first, batch.first), min(last, batch.last)):
            if run.state is not RecordState.AVAILABLE:
                continue
            is_last_try = limit > 2 and run.count == limit - 1
            if is_last_try and acquired:
                break
            if run.count >= self._throttled_from and most_throttled < 0:
                most_throttled = max(1, size >> (run.count - self._throttled_from + 1))
            count = 1 if is_last_try else len(run)
            if self._wanted.strictly:
                count = min(count, most - acquired)
            if most_throttled > acquired:
                count = min(count, most_throttled - acquired)
            taken = batch.take(run, count)
            taken.acquired_by(self._wanted.member, self._deadline)
            acquired += count
            if mine and mine[-1].last + 1 == taken.first and mine[-1].delivery_count == taken.count:
                mine[-1] = mine[-1]._replace(last=taken.last)
            else:
                mine.append(Acquired(taken.first, taken.last, taken.count))
            if is_last_try or acquired == most_throttled or (self._wanted.strictly and acquired >= most):
                break
        batch.join()
        self._result += mine
        self._count += acquired
        return acquired

    def _acquire_new(self, first: int, last: int, most: int) -> None:
        """Offsets that nobody has had, from `first` on."""
        partition, wanted = self._partition, self._wanted
        if not partition.batches and partition.end_offset > first:
            first = partition.end_offset
        end = last
        if most < end - first + 1:
            end = self._end_of_batch_with(first + most - 1)
            if partition.gap_start >= 0:
                end = min(end, last)
        pieces = self._pieces(first, end)
        begins_here = not partition.batches or first <= partition.batches[0].first
        if wanted.strictly and end - first + 1 > most:
            self._add_beginning(first, end, most)
            end_acquired = first + most - 1
        else:
            for piece_first, piece_last in pieces:
                run = Run(piece_first, piece_last, RecordState.ACQUIRED, 1, wanted.member, self._deadline)
                partition.add(InFlightBatch([run]))
                self._result.append(Acquired(piece_first, piece_last, 1))
            end_acquired = end
        self._count += end_acquired - first + 1
        if begins_here:
            partition.start_offset = first
        partition.end_offset = max(partition.end_offset, end)
        partition.gap_seen(end_acquired + 1)

    def _add_beginning(self, first: int, end: int, most: int) -> None:
        """Only the beginning of a batch of the log is acquired; the rest is available."""
        wanted, cut = self._wanted, first + most
        given = Run(first, cut - 1, RecordState.ACQUIRED, 1, wanted.member, self._deadline)
        self._partition.add(InFlightBatch([given, Run(cut, end, RecordState.AVAILABLE, 0)], per_offset=True))
        self._partition.search_again()
        self._result.append(Acquired(first, cut - 1, 1))

    def _pieces(self, first: int, last: int) -> list[tuple[int, int]]:
        """[first, last] in pieces of about batch_size, cut where batches of the log begin."""
        pieces: list[tuple[int, int]] = []
        if not self._wanted.strictly and last - first + 1 > self._wanted.batch_size:
            for span in self._wanted.spans:
                if span.first > last:
                    break
                if span.first - first >= max(1, self._wanted.batch_size):
                    pieces.append((first, span.first - 1))
                    first = span.first
        pieces.append((first, last))
        return pieces

    def _end_of_batch_with(self, offset: int) -> int:
        """The last offset of the batch of the log that holds `offset`; `offset` in a gap."""
        for span in reversed(self._wanted.spans):
            if span.first <= offset:
                return max(offset, span.last)
        return offset


def without(acquired: Sequence[Acquired], taken: Sequence[Span]) -> list[Acquired]:
    """Acquired offsets without `taken`, which are in order."""
    result: list[Acquired] = []
    at = 0
    for piece in acquired:
        first = piece.first
        while at < len(taken) and taken[at].last < first:
            at += 1
        place = at
        while place < len(taken) and taken[place].first <= piece.last:
            if first < taken[place].first:
                result.append(Acquired(first, taken[place].first - 1, piece.delivery_count))
            first = max(first, taken[place].last + 1)
            place += 1
        if first <= piece.last:
            result.append(Acquired(first, piece.last, piece.delivery_count))
    return result


def archive_aborted(partition: SharePartition, acquired: Sequence[Acquired], aborted: Sequence[Span]) -> list[Acquired]:
    """Batches of aborted transactions are given to nobody (share.isolation.level=read_committed)."""
    for span in aborted:
        floor = partition.floor(span.first)
        first = span.first if floor is None else floor.first
        partition.archive(span.first, span.last, partition.beginning_between(first, span.last), RecordState.ACQUIRED)
    partition.settle()  # nobody acknowledges these: what is full of them would stay full
    return without(acquired, aborted)


# What became of records of a share partition and is not written yet: it is written and then `done`, or undone.
#
# Also what happens without a word of the member that has them: it is gone, or its lock has ended.


class Change:
    """State changes of records, to be persisted. batches: to be written; empty: there is nothing to write.

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
    """Release the member's records; their delivery does not count as failed."""
    return _freed(partition, [(batch, run) for batch, run in partition.acquired() if run.member == member], limits)


def expire(partition: SharePartition, now: int, limits: Limits) -> Change:
    """Release the records whose acquisition lock has ended."""
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


# What members say of the records that they have acquired (SharePartition.acknowledge).

_LOOKED_UP = 8
"""Pieces of one acknowledgement."""


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
        at = self.first
        for kind, same in groupby(self.types):
            count = sum(1 for _ in same)
            yield at, at + count - 1, kind
            at += count


def acknowledge(
    partition: SharePartition, member: str, batches: Sequence[Acknowledgement], now: int, limits: Limits
) -> Change:
    """Raises BrokerError invalid_record_state or invalid_request, and then nothing of `batches` counts."""
    change = Change(partition)
    try:
        for batch in batches:
            if batch.last >= partition.start_offset:
                concerned, runs = _concerned(partition, batch), list(batch.runs())
                for found in concerned:
                    _acknowledge(partition, member, batch, runs, found, now, limits, change)
    except BrokerError:
        change.undo()
        raise
    return change


def _refused(what: str) -> BrokerError:
    return BrokerError(ErrorCode.invalid_record_state, what)


def _concerned(partition: SharePartition, batch: Acknowledgement) -> list[InFlightBatch]:
    floor = partition.floor(batch.first)
    if floor is None and batch.first < partition.start_offset <= batch.last:
        floor = partition.floor(partition.start_offset)
    if floor is None:
        raise _refused("Batch record not found. The request batch offsets are not found in the cache.")
    found = partition.beginning_between(floor.first, batch.last)
    for offset, which in ((batch.first, "first"), (batch.last, "last")):
        if found[-1].last < offset:
            raise BrokerError(
                ErrorCode.invalid_request,
                f"Batch record not found. The {which} offset in request is past acquired records.",
            )
    return found


def _acknowledge(
    partition: SharePartition,
    member: str,
    said: Acknowledgement,
    said_runs: Sequence[tuple[int, int, int]],
    batch: InFlightBatch,
    now: int,
    limits: Limits,
    change: Change,
) -> None:
    if batch.last < partition.start_offset:
        return
    if not batch.per_offset:
        _check_owner(batch, member)
    change.touch(batch)
    is_whole = batch.is_within(said.first, said.last)
    if is_whole and not batch.per_offset and len(said.types) == 1 and not partition.is_cut_by_start(batch):
        if batch.whole.state is not RecordState.ACQUIRED:
            raise _refused("The batch cannot be acknowledged. The batch is not in the acquired state.")
        _apply(partition, batch.whole, said.types[0], now, limits, change)
        return
    if not batch.per_offset:
        if batch.whole.state is not RecordState.ACQUIRED:
            raise _refused("The batch cannot be acknowledged. The subset batch is not in the acquired state.")
        batch.per_offset = True
    lowest = max(batch.first, partition.start_offset)
    begin = bisect_left(said_runs, lowest, key=itemgetter(1))
    pieces = said_runs[begin : bisect_right(said_runs, batch.last, key=itemgetter(0))]
    for run, kind in _runs_of(batch, pieces, lowest):
        if run.state is not RecordState.ACQUIRED:
            raise _refused("The offset cannot be acknowledged. The offset is not acquired.")
        if run.member != member:
            raise _refused("Member is not the owner of offset")
        _apply(partition, run, kind, now, limits, change)


def _runs_of(batch: InFlightBatch, pieces: Sequence[tuple[int, int, int]], lowest: int) -> Iterator[tuple[Run, int]]:
    """The runs of each piece with its type. Few pieces are looked up, so that many acknowledgements of one batch do not
    go through all of its runs each; many are cut in one pass."""
    if len(pieces) <= _LOOKED_UP:
        for first, last, kind in pieces:
            for one in batch.between(max(first, lowest), min(last, batch.last)):
                yield one, kind
        return
    batch.cut_all([max(pieces[0][0], lowest), *(piece[0] for piece in pieces[1:]), pieces[-1][1] + 1])
    runs = batch.between(max(pieces[0][0], lowest), min(pieces[-1][1], batch.last))
    run = next(runs, None)
    for _, last, kind in pieces:
        while run is not None and run.first <= last:
            yield run, kind
            run = next(runs, None)


def _check_owner(batch: InFlightBatch, member: str) -> None:
    owner = batch.whole.member
    if owner == NO_MEMBER:
        raise _refused("The batch cannot be acknowledged. The batch is not in the acquired state.")
    if owner != member:
        raise _refused("Member is not the owner of batch record")


def _apply(partition: SharePartition, run: Run, kind: int, now: int, limits: Limits, change: Change) -> None:
    if kind == AcknowledgeType.RENEW:
        if not limits.may_renew:
            raise _refused("Renewing acquisition locks is not enabled for the group.")
        run.deadline = now + limits.lock_ms
        partition.next_deadline = min(partition.next_deadline, run.deadline)
        return
    state = AFTER[kind]
    run.free(released_state(run.count, limits.max_deliveries) if state is RecordState.AVAILABLE else state)
    change.note(run)
