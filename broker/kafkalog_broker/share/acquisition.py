"""Acquisition of records of a share partition by a member (Kafka's SharePartition.acquire)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from kafkalog_broker.groups.modern.group_settings import Limits
from kafkalog_broker.share.in_flight_batch import InFlightBatch, Run
from kafkalog_broker.share.record_state import RecordState
from kafkalog_broker.share.share_partition import SharePartition

_MIN_THROTTLING_DELIVERIES = 2
"""Records with fewer deliveries are never throttled. Throttled records are delivered in small portions, because one of
them may be the reason why consumers fail."""


class Span(NamedTuple):
    """The offsets [first, last] of one batch of the log."""

    first: int
    last: int


class Acquired(NamedTuple):
    """Offsets that a member has acquired, in their `delivery_count`th delivery."""

    first_offset: int
    last_offset: int
    delivery_count: int


@dataclass
class Acquisition:
    """One acquisition of records for a member.

    Attributes:
        fetch_offset: Offset at which the log was read, see `SharePartition.next_fetch_offset`.
        spans: Batches of the log that were read, in order.
        max_records: A soft limit: more records are acquired to complete a batch, unless `is_record_limit`.
        batch_size: Number of offsets in one in-flight batch, approximately.
        is_record_limit: Never acquire more than `max_records` (share.acquire.mode=record_limit).
    """

    partition: SharePartition
    limits: Limits
    member_id: str
    fetch_offset: int
    spans: Sequence[Span]
    max_records: int
    batch_size: int
    now_ms: int
    is_record_limit: bool = False

    def __post_init__(self) -> None:
        self._lock_deadline = self.now_ms + self.limits.lock_ms
        self._throttling_deliveries = max(_MIN_THROTTLING_DELIVERIES, ceil(self.limits.max_deliveries / 2))
        self._acquired: list[Acquired] = []
        self._acquired_count = 0

    def acquire(self) -> list[Acquired]:
        """Acquire records and return their offsets in order.

        The member holds the records until it acknowledges or releases them, or until their lock expires.
        """
        partition = self.partition
        if not self.spans or self.max_records <= 0 or self.spans[-1].last < partition.start_offset:
            return []
        first_read = self.spans[0].first
        last = self.spans[-1].last
        self._archive_compacted(first_read)  # before the count of records in flight, which it may reduce
        max_count = min(self.max_records, self.limits.max_in_flight - partition.in_flight_count)
        if max_count <= 0 and self.fetch_offset <= partition.end_offset:
            # No new records fit in, but available records that are already in flight can be acquired.
            max_count = min(self.max_records, partition.end_offset - self.fetch_offset + 1)
            last = min(last, partition.end_offset)
        if max_count <= 0 or last < max(first_read, partition.start_offset):
            return []
        floor = partition.floor_batch(first_read)
        first = first_read
        if floor is None:
            first = max(first_read, partition.start_offset)
        elif floor.last >= first_read:  # an in-flight batch may begin before the first batch that was read
            first = floor.first
        batches = partition.batches_starting_in(min(first_read, first), last)
        if batches:
            self._acquire_from_batches(batches, first, last, max_count)
        else:
            self._acquire_new(first, last, max_count)
        if self._acquired:
            partition.next_lock_deadline = min(partition.next_lock_deadline, self._lock_deadline)
        return self._acquired

    def _archive_compacted(self, first_read: int) -> None:
        """Archive available records from the fetch offset up to the first batch that was read.

        Compaction has removed these records from the log.
        """
        partition, fetch_offset = self.partition, self.fetch_offset
        if fetch_offset >= first_read or not partition.batches:
            return
        floor = partition.floor_batch(fetch_offset)
        first = floor.first if floor is not None and floor.last >= fetch_offset else fetch_offset
        compacted = partition.batches_starting_in(first, first_read - 1)
        if partition.archive(fetch_offset, first_read - 1, compacted, RecordState.AVAILABLE):
            partition.reset_next_fetch_offset()
            partition.advance_start_offset()

    def _acquire_from_batches(self, batches: list[InFlightBatch], first: int, last: int, max_count: int) -> None:
        """Acquire available records of `batches`, and new records in the gaps between and after them."""
        partition = self.partition
        first_read = self.spans[0].first
        gap_from = first
        for batch in batches:
            if self._acquired_count >= max_count:
                break
            if partition.gap_start is not None:
                if gap_from < batch.first:
                    self._acquire_new(gap_from, batch.first - 1, max_count - self._acquired_count)
                gap_from = batch.last + 1
                if self._acquired_count >= max_count:
                    break
            is_throttled = self._is_throttled(batch, first_read, last)
            if is_throttled and self._acquired_count:
                break  # the next fetch acquires the throttled batch, without other records
            exceeds_limit = self.is_record_limit and batch.last - batch.first + 1 > max_count - self._acquired_count
            is_whole = batch.is_within(first_read, last) and not (
                batch.has_offset_state or exceeds_limit or is_throttled
            )
            if is_whole:
                self._acquire_whole(batch.whole)
                continue
            if not batch.has_offset_state:
                if batch.whole.state is not RecordState.AVAILABLE:
                    continue
                batch.has_offset_state = True
            if self._acquire_offsets(batch, first_read, last, max_count - self._acquired_count) and is_throttled:
                break
        else:
            if self._acquired_count < max_count and batches[-1].last < last:
                self._acquire_new(batches[-1].last + 1, last, max_count - self._acquired_count)
        if self._acquired:
            partition.shrink_gap(self._acquired[-1].last_offset + 1)

    def _is_throttled(self, batch: InFlightBatch, first: int, last: int) -> bool:
        return any(
            run.state is RecordState.AVAILABLE
            and run.delivery_count >= self._throttling_deliveries
            and (not batch.has_offset_state or (run.last >= first and run.first <= last))
            for run in batch.runs
        )

    def _acquire_whole(self, run: Run) -> None:
        if run.state is RecordState.AVAILABLE:
            run.acquire(self.member_id, self._lock_deadline)
            self._acquired.append(Acquired(run.first, run.last, run.delivery_count))
            self._acquired_count += len(run)

    def _acquire_offsets(self, batch: InFlightBatch, first: int, last: int, max_count: int) -> int:
        """Acquire available offsets of a batch in [first, last], and return their number.

        Throttled records are acquired up to a half, a quarter and so on of the batch with each further delivery, and
        alone before the last one.
        """
        count = 0
        throttled_count: int | None = None
        max_deliveries = self.limits.max_deliveries
        acquired: list[Acquired] = []
        batch_offsets = batch.last - batch.first + 1
        for run in batch.runs_between(max(first, batch.first), min(last, batch.last)):
            if run.state is not RecordState.AVAILABLE:
                continue
            is_last_delivery = max_deliveries > 2 and run.delivery_count == max_deliveries - 1
            if is_last_delivery and count:
                break
            if run.delivery_count >= self._throttling_deliveries and throttled_count is None:
                throttled_count = max(1, batch_offsets >> (run.delivery_count - self._throttling_deliveries + 1))
            part_count = 1 if is_last_delivery else len(run)
            if self.is_record_limit:
                part_count = min(part_count, max_count - count)
            if throttled_count is not None and throttled_count > count:
                part_count = min(part_count, throttled_count - count)
            part = next(batch.runs_between(run.first, run.first + part_count - 1))
            part.acquire(self.member_id, self._lock_deadline)
            count += part_count
            if (
                acquired
                and acquired[-1].last_offset + 1 == part.first
                and acquired[-1].delivery_count == part.delivery_count
            ):
                acquired[-1] = acquired[-1]._replace(last_offset=part.last)
            else:
                acquired.append(Acquired(part.first, part.last, part.delivery_count))
            if is_last_delivery or count == throttled_count or (self.is_record_limit and count >= max_count):
                break
        batch.merge_runs()
        self._acquired += acquired
        self._acquired_count += count
        return count

    def _acquire_new(self, first: int, last: int, max_count: int) -> None:
        """Acquire records that are not in flight yet, up to the end of the log batch that contains the last one."""
        partition = self.partition
        if not partition.batches and partition.end_offset > first:
            first = partition.end_offset
        end = last
        if max_count < end - first + 1:
            end = first + max_count - 1
            # `end` stays as it is if it is in no batch of the log, because compaction has removed its record.
            end = next((max(end, span.last) for span in reversed(self.spans) if span.first <= end), end)
            if partition.gap_start is not None:
                end = min(end, last)
        becomes_start = not partition.batches or first <= partition.batches[0].first
        acquired_end = end
        if self.is_record_limit and end - first + 1 > max_count:
            # The rest of the last batch of the log becomes in flight too, in the state AVAILABLE.
            acquired_end = first + max_count - 1
            acquired = Run(first, acquired_end, RecordState.ACQUIRED, 1, self.member_id, self._lock_deadline)
            rest = Run(acquired_end + 1, end, RecordState.AVAILABLE, 0)
            partition.add_batch(InFlightBatch([acquired, rest], has_offset_state=True))
            partition.reset_next_fetch_offset()
            self._acquired.append(Acquired(first, acquired_end, 1))
        else:
            for span in self._in_flight_spans(first, end):
                run = Run(*span, RecordState.ACQUIRED, 1, self.member_id, self._lock_deadline)
                partition.add_batch(InFlightBatch([run]))
                self._acquired.append(Acquired(*span, 1))
        self._acquired_count += acquired_end - first + 1
        if becomes_start:
            partition.start_offset = first
        partition.end_offset = max(partition.end_offset, end)
        partition.shrink_gap(acquired_end + 1)

    def _in_flight_spans(self, first: int, last: int) -> list[Span]:
        """Split [first, last] at batches of the log into spans of about `batch_size` offsets."""
        spans: list[Span] = []
        if not self.is_record_limit and last - first + 1 > self.batch_size:
            for span in self.spans:
                if span.first > last:
                    break
                if span.first - first >= max(1, self.batch_size):
                    spans.append(Span(first, span.first - 1))
                    first = span.first
        spans.append(Span(first, last))
        return spans


def archive_aborted(partition: SharePartition, acquired: Sequence[Acquired], aborted: Sequence[Span]) -> list[Acquired]:
    """Archive acquired records of aborted transactions (share.isolation.level=read_committed).

    Args:
        aborted: Batches of aborted transactions, in order.

    Returns:
        `acquired` without the archived offsets.
    """
    for span in aborted:
        floor = partition.floor_batch(span.first)
        first = span.first if floor is None else floor.first
        partition.archive(*span, partition.batches_starting_in(first, span.last), RecordState.ACQUIRED)
    # No acknowledgement will advance the start offset over the archived offsets: a partition full of them would stay
    # full.
    partition.advance_start_offset()
    return exclude(acquired, aborted)


def exclude(acquired: Sequence[Acquired], spans: Sequence[Span]) -> list[Acquired]:
    """Return the acquired offsets that are not in `spans`. Both must be in offset order."""
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
