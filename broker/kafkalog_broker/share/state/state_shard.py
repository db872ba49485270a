"""The share partitions of one partition of __share_group_state (Kafka's ShareCoordinatorShard): decisions.

Each method says what is to be written; `replay` takes it over once that is in the log. A write is an update of the last
snapshot, and every so many updates a snapshot of its own, so that what is older can be pruned.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import NamedTuple
from uuid import UUID

from kafkalog_broker.coordinator.coordinator_log import Record
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.share.state.state_records import (
    NO_START_OFFSET,
    NOT_COUNTED,
    SNAPSHOT,
    UPDATE,
    SharePartitionKey,
    ShareState,
    StateBatch,
    combined,
    decode_snapshot,
    decode_state_key,
    decode_update,
    snapshot_value,
    state_key,
    update_value,
)

# Up to where a partition of __share_group_state is superseded (Kafka's ShareCoordinatorOffsetsManager).

_DROPPED = 2
"""Superseded entries dropped for each snapshot: more than one, or all would be dropped at the next look-up."""


class RedundantOffsets:
    """Each share partition needs its last snapshot and what follows: below the smallest of these nothing is needed."""

    def __init__(self) -> None:
        self._last: dict[SharePartitionKey, int] = {}
        self._heap: list[tuple[int, SharePartitionKey]] = []
        self._end = 0
        """After the last snapshot or tombstone that was seen."""

    def moved(self, key: SharePartitionKey, offset: int, *, is_gone: bool) -> None:
        """A snapshot, or a tombstone, lies at `offset`."""
        if is_gone:
            self._last.pop(key, None)
        else:
            self._last[key] = offset
            heappush(self._heap, (offset, key))
        self._end = max(self._end, offset)
        for _ in range(_DROPPED):
            self._drop_first()

    def first_needed(self) -> int:
        """Records below may be deleted; 0 where none may. With nothing known any more, the last tombstone stays."""
        while self._drop_first():
            pass
        return self._heap[0][0] if self._heap else self._end

    def _drop_first(self) -> bool:
        """Drop the first entry if it was superseded; True if so."""
        if not self._heap or self._last.get(self._heap[0][1]) == self._heap[0][0]:
            return False
        heappop(self._heap)
        return True


NO_EPOCH = -1
PIECE = 64
"""Share partitions of a step: a snapshot is made, written and taken over in some 15 microseconds, and in more where
there are many locks."""


@dataclass(slots=True)
class _Known:
    state: ShareState
    updates: int = 0
    """Since the last snapshot."""


class WriteState(NamedTuple):
    """Change of a share partition's state. Epochs -1: not checked. start_offset -1: as before."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Collection[StateBatch]


class Summary(NamedTuple):
    """Summary of a share partition's state, unknown ones included."""

    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = NO_START_OFFSET
    delivery_complete_count: int = NOT_COUNTED


class StateShard:
    """partitions_of: how many partitions a topic has, None when there is none of that id."""

    def __init__(
        self, updates_per_snapshot: int, partitions_of: Callable[[UUID], int | None], now_ms: Callable[[], int]
    ) -> None:
        self._updates_per_snapshot = updates_per_snapshot
        self._partitions_of = partitions_of
        self._now_ms = now_ms
        self._known: dict[SharePartitionKey, _Known] = {}
        self.redundant = RedundantOffsets()

    def __len__(self) -> int:
        return len(self._known)

    # what is asked

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> Record:
        """Raises BrokerError: invalid_request, fenced_state_epoch, unknown_topic_or_partition."""
        self._check_index(key)
        known = self._known.get(key)
        if known is not None and NO_EPOCH != state_epoch < known.state.state_epoch:
            raise BrokerError(ErrorCode.fenced_state_epoch, FENCED_STATE_EPOCH)
        self._check_exists(key)
        epoch = 0 if known is None else known.state.snapshot_epoch + 1
        complete = NOT_COUNTED if start_offset == NO_START_OFFSET else 0
        now = self._now_ms()
        return _snapshot(key, ShareState(epoch, state_epoch, 0, start_offset, complete, (), now, now))

    def write(self, key: SharePartitionKey, change: WriteState) -> Record:
        """Raises BrokerError: invalid_request, fenced_leader_epoch, fenced_state_epoch, unknown_topic_or_partition."""
        self._check_index(key)
        known = self._known.get(key)
        if known is None:
            raise BrokerError(
                ErrorCode.invalid_request, "Write operation on uninitialized share partition not allowed."
            )
        if NO_EPOCH != change.leader_epoch < known.state.leader_epoch:
            raise BrokerError(ErrorCode.fenced_leader_epoch, FENCED_LEADER_EPOCH)
        if NO_EPOCH != change.state_epoch < known.state.state_epoch:
            raise BrokerError(ErrorCode.fenced_state_epoch, FENCED_STATE_EPOCH)
        self._check_exists(key)
        return self._changed(key, known, change, known.state.leader_epoch)

    def read(self, key: SharePartitionKey, leader_epoch: int) -> tuple[ShareState, Record | None]:
        """The state, and what has to be written first: a leader of a newer epoch reads. Raises BrokerError."""
        self._check_index(key)
        known = self._known.get(key)
        if known is None:
            raise BrokerError(ErrorCode.invalid_request, "Read operation on uninitialized share partition not allowed.")
        state = known.state
        if state.leader_epoch > leader_epoch:
            raise BrokerError(ErrorCode.fenced_leader_epoch, FENCED_LEADER_EPOCH)
        self._check_exists(key)
        if leader_epoch in (NO_EPOCH, state.leader_epoch):
            return state, None
        change = WriteState(state.state_epoch, leader_epoch, state.start_offset, state.delivery_complete_count, ())
        return state, self._changed(key, known, change, leader_epoch)

    def summary(self, key: SharePartitionKey) -> Summary:
        """Raises BrokerError: invalid_request, unknown_topic_or_partition."""
        self._check_index(key)
        self._check_exists(key)
        known = self._known.get(key)
        if known is None:
            return Summary()
        state = known.state
        return Summary(state.state_epoch, state.leader_epoch, state.start_offset, state.delivery_complete_count)

    def delete(self, key: SharePartitionKey) -> Record | None:
        """None: there is nothing to delete. Raises BrokerError: invalid_request, unknown_topic_or_partition."""
        self._check_index(key)
        self._check_exists(key)
        return _tombstone(key) if key in self._known else None

    # what is done by itself

    # in pieces, of a step each: what one yields is written and replayed before the next is asked for

    def of_topics(self, topics: Collection[UUID]) -> Iterator[list[Record]]:
        """Tombstones of what is known of deleted topics."""
        for keys in self._pieces():
            yield [_tombstone(key) for key in keys if key.topic_id in topics and key in self._known]

    def cold(self, interval_ms: int) -> Iterator[list[Record]]:
        """Snapshots of what was not snapshotted for so long, since nothing before the oldest one can be pruned. None
        while all were made here: then nothing has moved since (ShareCoordinatorShard.snapshotColdPartitions)."""
        for keys in self._pieces():
            states = [self._known[key].state for key in keys if key in self._known]
            if any(state.create_timestamp_ms == state.write_timestamp_ms for state in states):
                break
            yield []
        else:
            return
        for keys in self._pieces():
            yield self._cold(keys, self._now_ms(), interval_ms)

    def _cold(self, keys: Iterable[SharePartitionKey], now: int, interval_ms: int) -> list[Record]:
        return [
            _snapshot(
                key,
                replace(known.state, snapshot_epoch=known.state.snapshot_epoch + 1, write_timestamp_ms=now),
            )
            for key in keys
            if (known := self._known.get(key)) is not None and now - known.state.write_timestamp_ms >= interval_ms
        ]

    def _pieces(self) -> Iterator[list[SharePartitionKey]]:
        """Keys in lists of bounded length; some may be gone when their turn comes."""
        keys = list(self._known)
        for at in range(0, len(keys), PIECE):
            yield keys[at : at + PIECE]

    # what is in the log

    def replay(self, offset: int, record: Record) -> None:
        """Take over a record of the log. Raises CorruptLog, UnsupportedFormat."""
        found = decode_state_key(record[0])
        if found is None:
            return
        kind, key = found
        value = record[1]
        if kind == SNAPSHOT:
            if value is None:
                self._known.pop(key, None)
            else:
                self._replay_snapshot(key, decode_snapshot(value))
            self.redundant.moved(key, offset, is_gone=value is None)
        elif value is not None:
            self._replay_update(key, decode_update(value))

    def _replay_snapshot(self, key: SharePartitionKey, state: ShareState) -> None:
        known = self._known.get(key)
        if known is None:
            self._known[key] = _Known(state)
            return
        known.state = state
        if known.updates >= self._updates_per_snapshot:
            known.updates = 0

    def _replay_update(self, key: SharePartitionKey, update: ShareState) -> None:
        known = self._known.get(key)
        if known is None:
            self._known[key] = _Known(update, 1)
            return
        known.state = _merged(known.state, update)
        known.updates += 1

    def _changed(self, key: SharePartitionKey, known: _Known, change: WriteState, leader_epoch: int) -> Record:
        state = known.state
        if known.updates < self._updates_per_snapshot:
            batches = tuple(combined((), change.batches, change.start_offset))
            update = ShareState(
                state.snapshot_epoch, 0, leader_epoch, change.start_offset, change.delivery_complete_count, batches
            )
            return state_key(UPDATE, key), update_value(update)
        start = state.start_offset if change.start_offset == NO_START_OFFSET else change.start_offset
        batches = tuple(combined(state.batches, change.batches, start))
        now, complete = self._now_ms(), change.delivery_complete_count
        return _snapshot(
            key,
            ShareState(
                state.snapshot_epoch + 1, state.state_epoch, leader_epoch, start, complete, batches, now, now
            ),
        )  # fmt: skip

    def _check_index(self, key: SharePartitionKey) -> None:
        if key.partition < 0:
            raise BrokerError(ErrorCode.invalid_request, "The partition id cannot be a negative number.")

    def _check_exists(self, key: SharePartitionKey) -> None:
        partitions = self._partitions_of(key.topic_id)
        if partitions is None or key.partition >= partitions:
            raise BrokerError(ErrorCode.unknown_topic_or_partition, UNKNOWN_PARTITION)


FENCED_LEADER_EPOCH = "The leader epoch in the request is older than the epoch on the broker."
FENCED_STATE_EPOCH = "The share coordinator rejected the request because the share-group state epoch did not match."
UNKNOWN_PARTITION = "This server does not host this topic-partition."
"""Texts of Kafka's errors."""


def _merged(state: ShareState, update: ShareState) -> ShareState:
    start = state.start_offset if update.start_offset == NO_START_OFFSET else update.start_offset
    return replace(
        state,
        leader_epoch=state.leader_epoch if update.leader_epoch == NO_EPOCH else update.leader_epoch,
        start_offset=start,
        delivery_complete_count=update.delivery_complete_count,
        batches=tuple(combined(state.batches, update.batches, start)),
    )


def _snapshot(key: SharePartitionKey, state: ShareState) -> Record:
    return state_key(SNAPSHOT, key), snapshot_value(state)


def _tombstone(key: SharePartitionKey) -> Record:
    return state_key(SNAPSHOT, key), None
