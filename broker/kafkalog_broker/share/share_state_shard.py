"""The share partitions of one partition of __share_group_state (Kafka's ShareCoordinatorShard).

Operations read the state and return the records to write; `replay` applies records that are in the log. A change is
written as an update of the last snapshot. After a configured number of updates a new snapshot is written instead, so
that the records before it can be pruned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from kafkalog_broker.coordinator.coordinator_record import Record
from kafkalog_broker.coordinator.coordinator_result import CoordinatorResult
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.share.share_state import (
    NO_EPOCH,
    NO_START_OFFSET,
    NOT_COUNTED,
    UNKNOWN_STATE,
    SharePartitionKey,
    ShareState,
    ShareStateUpdate,
    StateBatch,
)
from kafkalog_broker.share.share_state_records import ShareRecord, SnapshotRecord, UpdateRecord, encode_record
from kafkalog_broker.share.state_batches import combine_batches
from kafkalog_broker.storage.topic_registry import TopicRegistry

KEYS_PER_STEP = 64  # share partitions that are handled without yielding to the event loop
UNKNOWN_PARTITION_MESSAGE = "This server does not host this topic-partition."  # message of Kafka's error


class ShareStateShard:
    """State of the share partitions. Not thread-safe; loaded in any thread, then used from the event loop.

    `initialize`, `write`, `read`, `summary` and `delete` raise BrokerError invalid_request for an invalid share
    partition, and unknown_topic_or_partition if the partition does not exist. Docstrings name additional errors.
    """

    def __init__(self, updates_per_snapshot: int, clock: Clock, topics: TopicRegistry) -> None:
        """Create an empty shard.

        Args:
            updates_per_snapshot: Number of updates after which a snapshot is written.
            topics: Topics of the broker. Operations on partitions that do not exist are refused.
        """
        self._updates_per_snapshot = updates_per_snapshot
        self._clock = clock
        self._topics = topics
        self._entries: dict[SharePartitionKey, _Entry] = {}
        self._last_snapshot_offset = 0  # offset of the last snapshot or tombstone

    def encode(self, record: ShareRecord) -> Record:
        return encode_record(record)

    def replay(self, offset: int, record: ShareRecord) -> None:
        """Apply a record that is in the log at `offset`."""
        if isinstance(record, UpdateRecord):
            self._replay_update(record.key, record.update)
        else:
            self._replay_snapshot(offset, record.key, record.state)

    def _replay_snapshot(self, offset: int, key: SharePartitionKey, state: ShareState | None) -> None:
        entry = self._entries.get(key)
        if state is None:
            self._entries.pop(key, None)
        elif entry is None:
            self._entries[key] = _Entry(state, snapshot_offset=offset)
        else:
            entry.state, entry.snapshot_offset = state, offset
            if self._needs_snapshot(
                entry
            ):  # as in Kafka, a snapshot written before it was due does not reset the count
                entry.updates = 0
        self._last_snapshot_offset = max(self._last_snapshot_offset, offset)

    def _replay_update(self, key: SharePartitionKey, update: ShareStateUpdate) -> None:
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(ShareState(update.snapshot_epoch))
        entry.state = _updated(entry.state, update)
        entry.updates += 1

    def _needs_snapshot(self, entry: _Entry) -> bool:
        return entry.updates >= self._updates_per_snapshot

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int
    ) -> CoordinatorResult[ShareRecord, None]:
        """Create or reset a share partition. Additionally raises BrokerError fenced_state_epoch."""
        entry = self._validated_entry(key)
        if entry is not None:
            _check_state_epoch(entry.state, state_epoch)
        self._check_exists(key)
        snapshot_epoch = 0 if entry is None else entry.state.snapshot_epoch + 1
        complete_count = NOT_COUNTED if start_offset == NO_START_OFFSET else 0
        now_ms = self._clock.now_ms()
        state = ShareState(snapshot_epoch, state_epoch, 0, start_offset, now_ms, now_ms, (), complete_count)
        return CoordinatorResult([SnapshotRecord(key, state)], None)

    def write(
        self, key: SharePartitionKey, *, state_epoch: int, leader_epoch: int, start_offset: int,
        delivery_complete_count: int, batches: Sequence[StateBatch],
    ) -> CoordinatorResult[ShareRecord, None]:  # fmt: skip
        """Change the state of a share partition.

        Additionally raises BrokerError fenced_leader_epoch and fenced_state_epoch.

        Args:
            state_epoch, leader_epoch: Not checked if NO_EPOCH.
            start_offset: Not changed if NO_START_OFFSET.
        """
        entry = self._validated_entry(key)
        if entry is None:
            raise BrokerError(
                ErrorCode.invalid_request, "Write operation on uninitialized share partition not allowed."
            )
        state = entry.state
        if leader_epoch != NO_EPOCH:
            _check_leader_epoch(state, leader_epoch)
        _check_state_epoch(state, state_epoch)
        self._check_exists(key)
        update = ShareStateUpdate(
            state.snapshot_epoch, state.leader_epoch, start_offset, batches, delivery_complete_count
        )
        return CoordinatorResult([self._update_record(key, entry, update)], None)

    def read(self, key: SharePartitionKey, leader_epoch: int) -> CoordinatorResult[ShareRecord, ShareState]:
        """Return the state of a share partition to its leader, and write the leader epoch if it is a newer one.

        Additionally raises BrokerError fenced_leader_epoch, which includes NO_EPOCH once the state has a leader epoch.
        """
        entry = self._validated_entry(key)
        if entry is None:
            raise BrokerError(ErrorCode.invalid_request, "Read operation on uninitialized share partition not allowed.")
        state = entry.state
        _check_leader_epoch(state, leader_epoch)
        self._check_exists(key)
        if leader_epoch in (NO_EPOCH, state.leader_epoch):
            return CoordinatorResult([], state)
        update = ShareStateUpdate(
            state.snapshot_epoch, leader_epoch, state.start_offset, (), state.delivery_complete_count
        )
        return CoordinatorResult([self._update_record(key, entry, update)], state)

    def summary(self, key: SharePartitionKey) -> ShareState:
        """Return the state of a share partition; UNKNOWN_STATE if it has none."""
        entry = self._validated_entry(key)
        self._check_exists(key)
        return UNKNOWN_STATE if entry is None else entry.state

    def delete(self, key: SharePartitionKey) -> CoordinatorResult[ShareRecord, None]:
        """Delete the state of a share partition. No-op if it has none."""
        entry = self._validated_entry(key)
        self._check_exists(key)
        return CoordinatorResult([] if entry is None else [SnapshotRecord(key, None)], None)

    def _validated_entry(self, key: SharePartitionKey) -> _Entry | None:
        """Return the entry of a share partition, or None. Raises BrokerError if the key is invalid."""
        if key.partition < 0:
            raise BrokerError(ErrorCode.invalid_request, "The partition id cannot be a negative number.")
        return self._entries.get(key)

    def _check_exists(self, key: SharePartitionKey) -> None:
        topic = self._topics.by_id(key.topic_id)
        if topic is None or key.partition >= topic.partitions:
            raise BrokerError(ErrorCode.unknown_topic_or_partition, UNKNOWN_PARTITION_MESSAGE)

    def _update_record(self, key: SharePartitionKey, entry: _Entry, update: ShareStateUpdate) -> ShareRecord:
        """Return the record for an update: a snapshot of the updated state, if enough updates were written."""
        if self._needs_snapshot(entry):
            now_ms = self._clock.now_ms()
            state = _updated(entry.state, update)._replace(
                snapshot_epoch=update.snapshot_epoch + 1, create_timestamp_ms=now_ms, write_timestamp_ms=now_ms
            )
            return SnapshotRecord(key, state)
        batches = combine_batches((), update.batches, update.start_offset)
        return UpdateRecord(key, update._replace(batches=batches))

    def prune_offset(self) -> int:
        """Return the offset below which records can be deleted: the offset of the oldest snapshot that is still needed.

        Without any share partition the last tombstone is kept (Kafka's ShareCoordinatorOffsetsManager).
        """
        offsets = (entry.snapshot_offset for entry in self._entries.values() if entry.snapshot_offset is not None)
        return min(offsets, default=self._last_snapshot_offset)

    def cold_snapshots(self, interval_ms: int) -> Iterator[list[ShareRecord]]:
        """Yield new snapshots of share partitions whose last snapshot is at least `interval_ms` old.

        Records can be pruned only up to the oldest snapshot (Kafka: `ShareCoordinatorShard.snapshotColdPartitions`).

        Some lists are empty. Nothing is written if every partition's last snapshot came from this method: no share
        partition has changed since.
        """
        for keys in self._key_steps():
            states = [self._entries[key].state for key in keys if key in self._entries]
            if any(state.create_timestamp_ms == state.write_timestamp_ms for state in states):
                break
            yield []
        else:
            return
        for keys in self._key_steps():
            now_ms = self._clock.now_ms()
            states_by_key = [(key, self._entries[key].state) for key in keys if key in self._entries]
            yield [
                SnapshotRecord(key, state._replace(snapshot_epoch=state.snapshot_epoch + 1, write_timestamp_ms=now_ms))
                for key, state in states_by_key
                if now_ms - state.write_timestamp_ms >= interval_ms
            ]

    def delete_topics(self, topics: Collection[UUID]) -> Iterator[list[ShareRecord]]:
        """Yield tombstones of all share partitions of deleted topics."""
        for keys in self._key_steps():
            yield [SnapshotRecord(key, None) for key in keys if key.topic_id in topics and key in self._entries]

    def _key_steps(self) -> Iterator[list[SharePartitionKey]]:
        """Yield the present keys in lists of KEYS_PER_STEP. A share partition may be deleted before its step."""
        keys = list(self._entries)
        for at in range(0, len(keys), KEYS_PER_STEP):
            yield keys[at : at + KEYS_PER_STEP]


@dataclass(slots=True)
class _Entry:
    """State of a share partition, number of updates since its last due snapshot, and offset of its last snapshot."""

    state: ShareState
    updates: int = 0
    snapshot_offset: int | None = None


def _check_leader_epoch(state: ShareState, leader_epoch: int) -> None:
    if leader_epoch < state.leader_epoch:
        raise BrokerError(
            ErrorCode.fenced_leader_epoch, "The leader epoch in the request is older than the epoch on the broker."
        )


def _check_state_epoch(state: ShareState, state_epoch: int) -> None:
    if NO_EPOCH != state_epoch < state.state_epoch:
        raise BrokerError(
            ErrorCode.fenced_state_epoch,
            "The share coordinator rejected the request because the share-group state epoch did not match.",
        )


def _updated(state: ShareState, update: ShareStateUpdate) -> ShareState:
    start = state.start_offset if update.start_offset == NO_START_OFFSET else update.start_offset
    return state._replace(
        leader_epoch=state.leader_epoch if update.leader_epoch == NO_EPOCH else update.leader_epoch,
        start_offset=start, batches=tuple(combine_batches(state.batches, update.batches, start)),
        delivery_complete_count=update.delivery_complete_count,
    )  # fmt: skip
