"""What members say of the records that they have acquired (SharePartition.acknowledge)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.share.partition.change import Change
from kafkalog_broker.share.partition.in_flight_batch import NO_MEMBER, InFlightBatch, Run
from kafkalog_broker.share.partition.record_state import AFTER, AcknowledgeType, RecordState, released_state
from kafkalog_broker.share.partition.share_partition import Limits, SharePartition

_LOOKED_UP = 8
"""Pieces of one acknowledgement."""


class Acknowledgement(NamedTuple):
    """One type for all offsets of [first, last], or one for each."""

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
