"""Acknowledgement of records that a member has acquired (Kafka's SharePartition.acknowledge)."""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_settings import Limits
from kafkalog_broker.share.in_flight_batch import NO_MEMBER, InFlightBatch, Run
from kafkalog_broker.share.record_state import RecordState
from kafkalog_broker.share.share_partition import SharePartition
from kafkalog_broker.share.state_change import StateChange

_MAX_LOOKUPS = 8
"""Largest number of typed ranges in a batch for which the runs of each range are looked up separately. For more
ranges, all runs are split in one pass."""

_TypedRange = tuple[int, int, int]
"""First and last offset, and the type with which all offsets of the range are acknowledged. A plain tuple: there may be
one for each offset."""
_range_first, _range_last = itemgetter(0), itemgetter(1)


class AcknowledgeType(enum.IntEnum):
    """Type of an acknowledgement, as numbered in the protocol. GAP means that there is no record at the offset."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class Acknowledgement(NamedTuple):
    """Acknowledgement of the offsets [first, last], with one type for all of them or a type for each."""

    first: int
    last: int
    types: Sequence[int]

    def ranges(self) -> Iterator[_TypedRange]:
        """Yield the ranges of offsets with the same type, in order."""
        if len(self.types) == 1:
            yield self.first, self.last, self.types[0]
            return
        first = self.first
        for acknowledge_type, equal in groupby(self.types):
            count = sum(1 for _ in equal)
            yield first, first + count - 1, acknowledge_type
            first += count


def acknowledge(
    partition: SharePartition, member_id: str, acknowledgements: Sequence[Acknowledgement], now_ms: int, limits: Limits
) -> StateChange:
    """Change the states of acknowledged records and return the change, which is not persisted yet.

    Args:
        acknowledgements: In offset order.

    Raises:
        BrokerError: invalid_record_state or invalid_request, if the member has not acquired all records; then nothing
            has changed.
    """
    change = StateChange(partition)
    operation = _AcknowledgeOperation(partition, member_id, now_ms, limits, change)
    try:
        for acknowledgement in acknowledgements:
            if acknowledgement.last >= partition.start_offset:
                operation.acknowledge(acknowledgement)
    except BrokerError:
        change.rollback()
        raise
    return change


@dataclass(slots=True)
class _AcknowledgeOperation:
    """Acknowledges records for one request to a partition."""

    partition: SharePartition
    member_id: str
    now_ms: int
    limits: Limits
    change: StateChange

    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        batches = self._batches_of(acknowledgement)
        ranges = list(acknowledgement.ranges())
        for batch in batches:
            if batch.last >= self.partition.start_offset:
                self._acknowledge_in_batch(acknowledgement, ranges, batch)

    def _batches_of(self, acknowledgement: Acknowledgement) -> list[InFlightBatch]:
        partition = self.partition
        first, last, _ = acknowledgement
        floor = partition.floor_batch(first)
        if floor is None and first < partition.start_offset <= last:
            floor = partition.floor_batch(partition.start_offset)
        if floor is None:
            raise _invalid_state("Batch record not found. The request batch offsets are not found in the cache.")
        batches = partition.batches_starting_in(floor.first, last)
        for offset, which in ((first, "first"), (last, "last")):
            if batches[-1].last < offset:
                raise BrokerError(
                    ErrorCode.invalid_request,
                    f"Batch record not found. The {which} offset in request is past acquired records.",
                )
        return batches

    def _acknowledge_in_batch(
        self, acknowledgement: Acknowledgement, ranges: Sequence[_TypedRange], batch: InFlightBatch
    ) -> None:
        partition = self.partition
        if not batch.has_offset_state:
            if batch.whole.member_id == NO_MEMBER:
                raise _invalid_state("The batch cannot be acknowledged. The batch is not in the acquired state.")
            if batch.whole.member_id != self.member_id:
                raise _invalid_state("Member is not the owner of batch record")
        self.change.save(batch)
        first, last, types = acknowledgement
        is_whole = batch.is_within(first, last) and len(types) == 1 and not partition.begins_within(batch)
        if is_whole and not batch.has_offset_state:
            if batch.whole.state is not RecordState.ACQUIRED:
                raise _invalid_state("The batch cannot be acknowledged. The batch is not in the acquired state.")
            self._apply(batch.whole, types[0])
            return
        if not batch.has_offset_state:
            if batch.whole.state is not RecordState.ACQUIRED:
                raise _invalid_state("The batch cannot be acknowledged. The subset batch is not in the acquired state.")
            batch.has_offset_state = True
        lowest = max(batch.first, partition.start_offset)
        begin = bisect_left(ranges, lowest, key=_range_last)
        end = bisect_right(ranges, batch.last, key=_range_first)
        for run, acknowledge_type in _runs_with_types(batch, ranges[begin:end], lowest):
            if run.state is not RecordState.ACQUIRED:
                raise _invalid_state("The offset cannot be acknowledged. The offset is not acquired.")
            if run.member_id != self.member_id:
                raise _invalid_state("Member is not the owner of offset")
            self._apply(run, acknowledge_type)

    def _apply(self, run: Run, acknowledge_type: int) -> None:
        if acknowledge_type == AcknowledgeType.RENEW:
            if not self.limits.may_renew:
                raise _invalid_state("Renewing acquisition locks is not enabled for the group.")
            partition = self.partition
            run.lock_deadline = self.now_ms + self.limits.lock_ms
            partition.next_lock_deadline = min(partition.next_lock_deadline, run.lock_deadline)
            return
        if acknowledge_type == AcknowledgeType.RELEASE:
            run.release(self.limits.max_deliveries)
        elif acknowledge_type == AcknowledgeType.ACCEPT:
            run.unlock(RecordState.ACKNOWLEDGED)
        else:
            run.unlock(RecordState.ARCHIVED)
        self.change.add(run)


def _runs_with_types(batch: InFlightBatch, ranges: Sequence[_TypedRange], lowest: int) -> Iterator[tuple[Run, int]]:
    """Yield the runs of a batch from offset `lowest` on, split at `ranges`, each with its acknowledge type."""
    if len(ranges) <= _MAX_LOOKUPS:
        for first, last, acknowledge_type in ranges:
            for run in batch.runs_between(max(first, lowest), min(last, batch.last)):
                yield run, acknowledge_type
        return
    begin = max(ranges[0][0], lowest)
    end = ranges[-1][1]
    batch.split_at([begin, *(first for first, _, _ in ranges[1:]), end + 1])
    runs = batch.runs_between(begin, min(end, batch.last))
    next_run = next(runs, None)
    for _, last, acknowledge_type in ranges:
        while next_run is not None and next_run.first <= last:
            yield next_run, acknowledge_type
            next_run = next(runs, None)


def _invalid_state(message: str) -> BrokerError:
    return BrokerError(ErrorCode.invalid_record_state, message)
