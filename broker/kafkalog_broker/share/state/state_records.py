"""Keys and values of the records in __share_group_state, bit for bit as Kafka 4.3 writes them.

| record | key | value |
|---|---|---|
| all that is known of a share partition | ShareSnapshotKey, type 0 | ShareSnapshotValue 0, or null: forgotten |
| what has changed since | ShareUpdateKey, type 1 | ShareUpdateValue 0 |

A key begins with its type. Layouts: ShareSnapshotValue.json and its neighbours in Kafka's share-coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

from kafkalog_broker.protocol.frames import uvarint
from kafkalog_broker.share.message_parts import (
    I8,
    I16,
    I32,
    I64,
    VALUE_VERSION,
    array,
    key_string,
    read_number,
    read_uuid,
    tagged_number,
    value_reader,
)
from kafkalog_spark.format.internal_records import MessageReader

# State batches: runs of offsets that have been delivered equally often and are in the same state.
#
# `combined` is what PersisterStateBatchCombiner does: what is written of a share partition over and over becomes one
# list without overlaps. Where two say different things of an offset, the higher delivery count wins, then the later
# state.


class StateBatch(NamedTuple):
    """The offsets [first_offset, last_offset]. delivery_state: RecordState as a number."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int

    @property
    def rank(self) -> tuple[int, int]:
        """The higher one wins."""
        return self.delivery_count, self.delivery_state


NO_START_OFFSET = -1


def combined(so_far: Iterable[StateBatch], new: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """Batches without overlaps, in order; nothing below `start_offset`, unless that is not known (-1).

    One sweep over the edges of all of them: at each, what covers the next offsets with the highest rank counts.
    """
    batches = [*so_far, *new]
    if start_offset != NO_START_OFFSET:
        batches = [
            batch if batch.first_offset >= start_offset else batch._replace(first_offset=start_offset)
            for batch in batches
            if batch.last_offset >= start_offset
        ]
    if len(batches) < 2:
        return batches
    batches.sort()
    edges = sorted({edge for batch in batches for edge in (batch.first_offset, batch.last_offset + 1)})
    result: list[StateBatch] = []
    covering: list[tuple[int, int, int]] = []  # (-count, -state, last offset): the highest rank first
    at = 0
    for edge, next_edge in pairwise(edges):
        while at < len(batches) and batches[at].first_offset <= edge:
            batch = batches[at]
            heappush(covering, (-batch.delivery_count, -batch.delivery_state, batch.last_offset))
            at += 1
        while covering and covering[0][2] < edge:
            heappop(covering)
        if covering:
            count, state, _ = covering[0]
            _append(result, StateBatch(edge, next_edge - 1, -state, -count))
    return result


def _append(result: list[StateBatch], batch: StateBatch) -> None:
    if result and result[-1].last_offset + 1 == batch.first_offset and result[-1].rank == batch.rank:
        result[-1] = result[-1]._replace(last_offset=batch.last_offset)
    else:
        result.append(batch)


SNAPSHOT, UPDATE = 0, 1
"""Types of keys."""

NO_TOPIC = UUID(int=0)

NOT_COUNTED = -1
"""A delivery complete count that nobody has said."""

_DELIVERY_COMPLETE_COUNT = 0  # tag


class SharePartitionKey(NamedTuple):
    """One share partition: a partition as one group sees it."""

    group_id: str
    topic_id: UUID
    partition: int


def share_partition(group_id: str, topic_id: UUID | None, partition: int) -> SharePartitionKey:
    """As a request names it. None: an id of zeros, which no topic has."""
    return SharePartitionKey(group_id, topic_id or NO_TOPIC, partition)


@dataclass(frozen=True, slots=True)
class ShareState:
    """What is known of a share partition (ShareGroupOffset). Offsets -1: not initialized yet. Times in ms; an update
    says nothing of them, nor of the state epoch."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...] = ()
    create_timestamp_ms: int = 0
    write_timestamp_ms: int = 0


def state_key(kind: int, key: SharePartitionKey) -> bytes:
    return I16.pack(kind) + key_string(key.group_id) + key.topic_id.bytes + I32.pack(key.partition)


def snapshot_value(state: ShareState) -> bytes:
    head = I32.pack(state.snapshot_epoch) + I32.pack(state.state_epoch) + I32.pack(state.leader_epoch)
    times = I64.pack(state.create_timestamp_ms) + I64.pack(state.write_timestamp_ms)
    return VALUE_VERSION + head + I64.pack(state.start_offset) + times + _batches(state) + _tags(state)


def update_value(state: ShareState) -> bytes:
    head = I32.pack(state.snapshot_epoch) + I32.pack(state.leader_epoch) + I64.pack(state.start_offset)
    return VALUE_VERSION + head + _batches(state) + _tags(state)


def decode_state_key(key: bytes) -> tuple[int, SharePartitionKey] | None:
    """(type, share partition); None for a type that Kafka 4.3 does not know. Raises CorruptLog."""
    reader = MessageReader(key, "key of __share_group_state")
    kind = reader.int16()
    if kind not in (SNAPSHOT, UPDATE):
        return None
    return kind, SharePartitionKey(reader.string(), read_uuid(reader), reader.int32())


def decode_snapshot(value: bytes) -> ShareState:
    """Raises CorruptLog, and UnsupportedFormat for a later version."""
    reader = value_reader(value, "ShareSnapshotValue")
    snapshot_epoch, state_epoch, leader_epoch = reader.int32(), reader.int32(), reader.int32()
    start, created, written = reader.int64(), reader.int64(), reader.int64()
    batches = _read_batches(reader)
    complete = read_number(reader, _DELIVERY_COMPLETE_COUNT, I32, NOT_COUNTED)
    return ShareState(snapshot_epoch, state_epoch, leader_epoch, start, complete, batches, created, written)


def decode_update(value: bytes) -> ShareState:
    """Raises CorruptLog, and UnsupportedFormat for a later version."""
    reader = value_reader(value, "ShareUpdateValue")
    snapshot_epoch, leader_epoch, start = reader.int32(), reader.int32(), reader.int64()
    batches = _read_batches(reader)
    complete = read_number(reader, _DELIVERY_COMPLETE_COUNT, I32, NOT_COUNTED)
    return ShareState(snapshot_epoch, 0, leader_epoch, start, complete, batches)


def _batches(state: ShareState) -> bytes:
    return array(
        [
            I64.pack(batch.first_offset)
            + I64.pack(batch.last_offset)
            + I8.pack(batch.delivery_state)
            + I16.pack(batch.delivery_count)
            + uvarint(0)
            for batch in state.batches
        ]
    )


def _tags(state: ShareState) -> bytes:
    return tagged_number(_DELIVERY_COMPLETE_COUNT, I32, state.delivery_complete_count, NOT_COUNTED)


def _read_batches(reader: MessageReader) -> tuple[StateBatch, ...]:
    return tuple(_read_batch(reader) for _ in range(reader.array_length()))


def _read_batch(reader: MessageReader) -> StateBatch:
    first, last = reader.int64(), reader.int64()
    delivery_state, delivery_count = reader.int8(), reader.int16()
    reader.tagged_fields()
    return StateBatch(first, last, delivery_state, delivery_count)
