"""Persistent state of a share partition, as the share coordinator keeps it (Kafka's ShareGroupOffset)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

NO_START_OFFSET = -1  # the start offset is not determined yet
NOT_COUNTED = -1  # the delivery complete count is unknown, because its writer did not send it
NO_EPOCH = -1  # an epoch that is not checked, or not changed
NO_TOPIC = UUID(int=0)  # an ID that no topic has


class SharePartitionKey(NamedTuple):
    """Key of a share partition: a share group and a topic partition."""

    group_id: str
    topic_id: UUID
    partition: int


def share_partition_key(group_id: str, topic_id: UUID | None, partition: int) -> SharePartitionKey:
    """Return the key of a share partition that a request names; an absent topic ID becomes NO_TOPIC."""
    return SharePartitionKey(group_id, topic_id or NO_TOPIC, partition)


class StateBatch(NamedTuple):
    """The offsets [first_offset, last_offset], all with the same RecordState and delivery count."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class ShareState(NamedTuple):
    """State of a share partition, with the fields of ShareSnapshotValue in their order. Times are in ms."""

    snapshot_epoch: int
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = NO_START_OFFSET
    create_timestamp_ms: int = 0
    write_timestamp_ms: int = 0
    batches: Sequence[StateBatch] = ()
    delivery_complete_count: int = NOT_COUNTED


UNKNOWN_STATE = ShareState(0)  # summary of a share partition that has no state


class ShareStateUpdate(NamedTuple):
    """Change of a state since its last snapshot, with the fields of ShareUpdateValue in their order.

    A leader epoch of NO_EPOCH and a start offset of NO_START_OFFSET mean that it has not changed.
    """

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    batches: Sequence[StateBatch]
    delivery_complete_count: int
