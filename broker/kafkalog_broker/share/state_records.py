"""Keys and values of the records in __share_group_state, bit for bit as Kafka 4.3 writes them.

| record | key | value |
|---|---|---|
| all that is known of a share partition | ShareSnapshotKey, type 0 | ShareSnapshotValue 0, or null: forgotten |
| what has changed since | ShareUpdateKey, type 1 | ShareUpdateValue 0 |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

from kafkalog_broker.coordinator.coordinator_record import encode_message
from kafkalog_spark.format.messages import decode_key, message
from kafkalog_spark.format.names import SHARE_STATE_TOPIC


class StateBatch(NamedTuple):
    """Offsets [first_offset, last_offset] delivered equally often and in one state: RecordState as a number."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


NO_START_OFFSET = -1


def combined(so_far: Iterable[StateBatch], new: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """Batches without overlaps, in order; nothing below `start_offset`, unless that is not known (-1). Where two say
    different things of an offset, the higher delivery count wins, then the later state (PersisterStateBatchCombiner).

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
            before = result[-1] if result else None
            if before is not None and before[1:] == (edge - 1, -state, -count):
                result[-1] = before._replace(last_offset=next_edge - 1)
            else:
                result.append(StateBatch(edge, next_edge - 1, -state, -count))
    return result


SNAPSHOT, UPDATE = 0, 1  # types of keys

NO_TOPIC = UUID(int=0)

NOT_COUNTED = -1  # a delivery complete count that nobody has said

_KEYS = {SNAPSHOT: message("ShareSnapshotKey"), UPDATE: message("ShareUpdateKey")}
_SNAPSHOT_VALUE, _UPDATE_VALUE = message("ShareSnapshotValue"), message("ShareUpdateValue")


class SharePartitionKey(NamedTuple):
    """Key of a share partition: a partition as one group sees it."""

    group_id: str
    topic_id: UUID
    partition: int


def share_partition(group_id: str, topic_id: UUID | None, partition: int) -> SharePartitionKey:
    """As a request names it. None: an id of zeros, which no topic has."""
    return SharePartitionKey(group_id, topic_id or NO_TOPIC, partition)


class ShareState(NamedTuple):
    """State (ShareGroupOffset), in the order of ShareSnapshotValue. Offset -1: not initialized yet. Times in ms."""

    snapshot_epoch: int
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = NO_START_OFFSET
    create_timestamp_ms: int = 0
    write_timestamp_ms: int = 0
    batches: Sequence[StateBatch] = ()
    delivery_complete_count: int = NOT_COUNTED


class ShareUpdate(NamedTuple):
    """Change of a state since its snapshot, in the order of ShareUpdateValue. Leader epoch and offset -1: as before."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    batches: Sequence[StateBatch]
    delivery_complete_count: int


snapshot_value, update_value = _SNAPSHOT_VALUE.encode, _UPDATE_VALUE.encode


def state_key(key_type: int, key: SharePartitionKey) -> bytes:
    """Raises BrokerError where the group's id is too long."""
    return encode_message(_KEYS[key_type], key)


def decode_state_key(key: bytes) -> tuple[int, SharePartitionKey] | None:
    """(type, share partition); None for a type that Kafka 4.3 does not know. Raises CorruptLog."""
    decoded = decode_key(SHARE_STATE_TOPIC, key)
    return None if decoded is None else (decoded[0], SharePartitionKey(*decoded[1]))


def decode_snapshot(value: bytes) -> ShareState:
    """Raises CorruptLog, and UnsupportedFormat for a later version."""
    return ShareState(*_SNAPSHOT_VALUE.decode(value))


def decode_update(value: bytes) -> ShareUpdate:
    """Raises CorruptLog, and UnsupportedFormat for a later version."""
    return ShareUpdate(*_UPDATE_VALUE.decode(value))
