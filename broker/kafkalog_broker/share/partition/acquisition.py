"""Who gets which records of a share partition (SharePartition.acquire)."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from kafkalog_broker.share.partition.in_flight_batch import InFlightBatch, Run
from kafkalog_broker.share.partition.record_state import RecordState
from kafkalog_broker.share.partition.share_partition import Limits, SharePartition

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
    """What a member may have. spans: the batches of the log from `fetch_offset` on. max_records: soft unless
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
    """What the member gets, in order. It holds until it is acknowledged or released, or the lock ends."""
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
    """What was acquired but for `taken`, offsets of batches in order."""
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
