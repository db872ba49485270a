"""Who gets which records of a share partition (SharePartition.acquire)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from kafkalog_broker.groups.modern.group_settings import Limits
from kafkalog_broker.share.share_partition import InFlightBatch, RecordState, Run, SharePartition

_FEWEST_BEFORE_THROTTLING = 2
"""Records delivered that often are given a few at a time: one of them may be what makes consumers fail."""


class Span(NamedTuple):
    """The offsets of one batch of the log."""

    first: int
    last: int


class Acquired(NamedTuple):
    """Offsets that a member has acquired, delivered to somebody for the `delivery_count`th time."""

    first_offset: int
    last_offset: int
    delivery_count: int


@dataclass
class Acquisition:
    """Acquisition of a share partition's records for a member, within bounds. spans: the log's batches from
    `fetch_offset` on. max_records: soft unless `strictly` (share.acquire.mode=record_limit), where not even a batch may
    go beyond. batch_size: offsets kept as one batch."""

    partition: SharePartition
    limits: Limits
    member: str
    fetch_offset: int
    spans: Sequence[Span]
    max_records: int
    batch_size: int
    now: int
    strictly: bool = False

    def __post_init__(self) -> None:
        self._deadline = self.now + self.limits.lock_ms
        self._throttled_from = max(_FEWEST_BEFORE_THROTTLING, ceil(self.limits.max_deliveries / 2))
        self._result: list[Acquired] = []
        self._count = 0

    def acquire(self) -> list[Acquired]:
        """In offset order; the member has them until it acknowledges or releases them or the lock ends."""
        partition = self.partition
        if not self.spans or self.max_records <= 0 or self.spans[-1].last < partition.start_offset:
            return []
        base, last = self.spans[0].first, self.spans[-1].last
        self._archive_compacted(base)  # which may make room
        most = min(self.max_records, self.limits.max_in_flight - partition.in_flight)
        if most <= 0 and self.fetch_offset <= partition.end_offset:  # no new ones, but those given back
            most = min(self.max_records, partition.end_offset - self.fetch_offset + 1)
            last = min(last, partition.end_offset)
        if most <= 0 or last < max(base, partition.start_offset):
            return []
        floor = partition.floor(base)
        if floor is None:
            base = max(base, partition.start_offset)
        elif floor.last >= base:
            base = floor.first
        batches = partition.beginning_between(min(self.spans[0].first, base), last)
        if batches:
            self._acquire_among(batches, base, last, most)
        else:
            self._acquire_new(base, last, most)
        if self._result:
            partition.next_deadline = min(partition.next_deadline, self._deadline)
        return self._result

    def _archive_compacted(self, base: int) -> None:
        """Offsets between the one asked for and the first batch of the log are compacted away."""
        partition, offset = self.partition, self.fetch_offset
        if offset >= base or not partition.batches:
            return
        floor = partition.floor(offset)
        first = floor.first if floor is not None and floor.last >= offset else offset
        stale = partition.beginning_between(first, base - 1)
        if partition.archive(offset, base - 1, stale, RecordState.AVAILABLE):
            partition.search_again()
            partition.settle()

    def _acquire_among(self, batches: list[InFlightBatch], base: int, last: int, most: int) -> None:
        partition, first = self.partition, self.spans[0].first
        gap_from = base
        for batch in batches:
            if self._count >= most:
                break
            if partition.gap_start >= 0:
                if gap_from < batch.first:
                    self._acquire_new(gap_from, batch.first - 1, most - self._count)
                gap_from = batch.last + 1
                if self._count >= most:
                    break
            is_throttled = self._is_throttled(batch, first, last)
            if is_throttled and self._count:
                most = 0  # it comes alone, with the next fetch
                break
            is_cut = self.strictly and batch.last - batch.first + 1 > most - self._count
            if batch.is_within(first, last) and not (batch.per_offset or is_cut or is_throttled):
                run = batch.whole
                if run.state is RecordState.AVAILABLE:
                    run.acquire(self.member, self._deadline)
                    self._result.append(Acquired(run.first, run.last, run.count))
                    self._count += len(run)
                continue
            if not batch.per_offset:
                if batch.whole.state is not RecordState.AVAILABLE:
                    continue
                batch.per_offset = True
            if self._acquire_in(batch, first, last, most - self._count) and is_throttled:
                most = 0
                break
        if self._count < most and batches[-1].last < last:
            self._acquire_new(batches[-1].last + 1, last, most - self._count)
        if self._result:
            partition.gap_seen(self._result[-1].last_offset + 1)

    def _is_throttled(self, batch: InFlightBatch, first: int, last: int) -> bool:
        return any(
            run.state is RecordState.AVAILABLE
            and run.count >= self._throttled_from
            and (not batch.per_offset or (run.last >= first and run.first <= last))
            for run in batch.runs
        )

    def _acquire_in(self, batch: InFlightBatch, first: int, last: int, most: int) -> int:
        """Acquire available offsets in [first, last]; how many."""
        count, most_throttled, max_deliveries = 0, -1, self.limits.max_deliveries
        acquired: list[Acquired] = []
        size = batch.last - batch.first + 1
        for run in batch.between(max(first, batch.first), min(last, batch.last)):
            if run.state is not RecordState.AVAILABLE:
                continue
            is_last_try = max_deliveries > 2 and run.count == max_deliveries - 1
            if is_last_try and count:
                break
            if run.count >= self._throttled_from and most_throttled < 0:
                most_throttled = max(1, size >> (run.count - self._throttled_from + 1))
            taken_count = 1 if is_last_try else len(run)
            if self.strictly:
                taken_count = min(taken_count, most - count)
            if most_throttled > count:
                taken_count = min(taken_count, most_throttled - count)
            taken = next(batch.between(run.first, run.first + taken_count - 1))
            taken.acquire(self.member, self._deadline)
            count += taken_count
            if acquired and acquired[-1].last_offset + 1 == taken.first and acquired[-1].delivery_count == taken.count:
                acquired[-1] = acquired[-1]._replace(last_offset=taken.last)
            else:
                acquired.append(Acquired(taken.first, taken.last, taken.count))
            if is_last_try or count == most_throttled or (self.strictly and count >= most):
                break
        batch.merge_runs()
        self._result += acquired
        self._count += count
        return count

    def _acquire_new(self, first: int, last: int, most: int) -> None:
        partition = self.partition
        if not partition.batches and partition.end_offset > first:
            first = partition.end_offset
        end = last
        if most < end - first + 1:
            end = first + most - 1
            # the end of the batch of the log that holds this offset; itself in a gap
            end = next((max(end, span.last) for span in reversed(self.spans) if span.first <= end), end)
            if partition.gap_start >= 0:
                end = min(end, last)
        begins_here = not partition.batches or first <= partition.batches[0].first
        end_acquired = end
        if self.strictly and end - first + 1 > most:  # the rest of a batch of the log is available
            end_acquired = first + most - 1
            given = Run(first, end_acquired, RecordState.ACQUIRED, 1, self.member, self._deadline)
            rest = Run(end_acquired + 1, end, RecordState.AVAILABLE, 0)
            partition.add(InFlightBatch([given, rest], per_offset=True))
            partition.search_again()
            self._result.append(Acquired(first, end_acquired, 1))
        else:
            for span in self._batch_spans(first, end):
                run = Run(*span, RecordState.ACQUIRED, 1, self.member, self._deadline)
                partition.add(InFlightBatch([run]))
                self._result.append(Acquired(*span, 1))
        self._count += end_acquired - first + 1
        if begins_here:
            partition.start_offset = first
        partition.end_offset = max(partition.end_offset, end)
        partition.gap_seen(end_acquired + 1)

    def _batch_spans(self, first: int, last: int) -> list[Span]:
        """[first, last] cut into about batch_size, where batches of the log begin."""
        spans: list[Span] = []
        if not self.strictly and last - first + 1 > self.batch_size:
            for span in self.spans:
                if span.first > last:
                    break
                if span.first - first >= max(1, self.batch_size):
                    spans.append(Span(first, span.first - 1))
                    first = span.first
        spans.append(Span(first, last))
        return spans


def without(acquired: Sequence[Acquired], spans: Sequence[Span]) -> list[Acquired]:
    """Acquired offsets without those of `spans`, which are in order."""
    result: list[Acquired] = []
    begin = 0
    for first, last, delivery_count in acquired:
        while begin < len(spans) and spans[begin].last < first:
            begin += 1
        at = begin
        while at < len(spans) and spans[at].first <= last:
            if first < spans[at].first:
                result.append(Acquired(first, spans[at].first - 1, delivery_count))
            first = max(first, spans[at].last + 1)
            at += 1
        if first <= last:
            result.append(Acquired(first, last, delivery_count))
    return result


def archive_aborted(partition: SharePartition, acquired: Sequence[Acquired], aborted: Sequence[Span]) -> list[Acquired]:
    """Batches of aborted transactions are given to nobody (share.isolation.level=read_committed)."""
    for span in aborted:
        floor = partition.floor(span.first)
        first = span.first if floor is None else floor.first
        partition.archive(*span, partition.beginning_between(first, span.last), RecordState.ACQUIRED)
    partition.settle()  # nobody acknowledges these: what is full of them would stay full
    return without(acquired, aborted)
