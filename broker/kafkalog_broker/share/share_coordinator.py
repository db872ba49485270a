"""The share coordinator: where the state of a share partition is kept, and what is written there.

Kafka's brokers ask it over the network (InitializeShareGroupState and its kin); the parts of this one call it. All
calls come from the event loop's thread, and none of them waits. A write is an update of the last snapshot, and every so
many updates a snapshot of its own, so that what is older can be pruned; what is written is replayed.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.coordinator.coordinator_log import CoordinatorLog
from kafkalog_broker.coordinator.coordinator_record import Record
from kafkalog_broker.coordinator.coordinator_runtime import CoordinatorRuntime
from kafkalog_broker.coordinator.record_batch import CoordinatorBatch
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.share.state_records import (
    NO_START_OFFSET,
    NOT_COUNTED,
    SNAPSHOT,
    UPDATE,
    SharePartitionKey,
    ShareState,
    ShareUpdate,
    StateBatch,
    combined,
    decode_snapshot,
    decode_state_key,
    decode_update,
    snapshot_value,
    state_key,
    update_value,
)
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.names import SHARE_STATE_TOPIC
from kafkalog_spark.format.partition_metadata import uuid_to_text

_log = logging.getLogger(__name__)

NO_EPOCH = -1
KEYS_A_STEP = 64
"""Share partitions of a step: each is snapshotted, written and replayed in some 15 us, more with many locks."""
UNKNOWN_PARTITION = "This server does not host this topic-partition."  # text of Kafka's error


UNKNOWN_STATE = ShareState(0)


@dataclass(slots=True)
class _Entry:
    state: ShareState
    updates: int = 0  # since the last snapshot
    snapshot_at: int | None = None  # the offset of that


class ShareStateShard:
    """The share partitions of one partition of __share_group_state (Kafka's ShareCoordinatorShard)."""

    def __init__(self, updates_per_snapshot: int) -> None:
        self._updates_per_snapshot = updates_per_snapshot
        self.entries: dict[SharePartitionKey, _Entry] = {}
        self.end = 0  # the last snapshot or tombstone that was seen

    def needs_snapshot(self, entry: _Entry) -> bool:
        return entry.updates >= self._updates_per_snapshot

    def replay(self, offset: int, record: Record) -> None:
        """Take over a record of the log. Raises CorruptLog, UnsupportedFormat."""
        key_type_and_key = decode_state_key(record[0])
        if key_type_and_key is None:
            return
        key_type, key = key_type_and_key
        value, entry = record[1], self.entries.get(key)
        if key_type == SNAPSHOT:
            if value is None:
                self.entries.pop(key, None)
            elif entry is None:
                self.entries[key] = _Entry(decode_snapshot(value), snapshot_at=offset)
            else:
                entry.state, entry.snapshot_at = decode_snapshot(value), offset
                if self.needs_snapshot(entry):
                    entry.updates = 0
            self.end = max(self.end, offset)
        elif value is not None:
            update = decode_update(value)
            if entry is None:
                entry = self.entries[key] = _Entry(ShareState(update.snapshot_epoch))
            entry.state = _merged(entry.state, update)
            entry.updates += 1


class ShareCoordinator:
    def __init__(self, config: BrokerConfig, clock: Clock, log: CoordinatorLog, topics: TopicRegistry) -> None:
        self._config = config
        self._clock = clock
        self._topics = topics
        self.runtime: CoordinatorRuntime[ShareStateShard, ShareStateShard] = CoordinatorRuntime(
            log, self._load, lambda partition, shard: shard
        )
        now = clock.monotonic_ms()
        self._next_prune_ms = now + config.share_coordinator_state_topic_prune_interval_ms
        self._next_cold_ms = now + config.share_coordinator_cold_partition_snapshot_interval_ms

    def _load(self, batches: Iterable[CoordinatorBatch]) -> ShareStateShard:
        """A shard with the records of a partition replayed; in any thread. Records that cannot be read are logged."""
        shard = ShareStateShard(self._config.share_coordinator_snapshot_update_records_per_snapshot)
        for batch in batches:
            for offset, record in enumerate(batch.records, batch.base_offset):
                try:
                    shard.replay(offset, record)
                except KafkalogError as error:
                    _log.error("a record of %s is left out: %s", SHARE_STATE_TOPIC, error)
        return shard

    def partition_for(self, key: SharePartitionKey) -> int:
        return self.runtime.partition_for(f"{key.group_id}:{uuid_to_text(key.topic_id)}:{key.partition}")

    # requests; each raises BrokerError, and then nothing has changed

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        shard, entry = self._entry(key)
        if entry is not None:
            _check_state_epoch(entry.state, state_epoch)
        self._check_exists(key)
        snapshot_epoch = 0 if entry is None else entry.state.snapshot_epoch + 1
        complete = NOT_COUNTED if start_offset == NO_START_OFFSET else 0
        now = self._clock.now_ms()
        state = ShareState(snapshot_epoch, state_epoch, 0, start_offset, now, now, (), complete)
        self._put(shard, key, _snapshot(key, state))

    def write(
        self, key: SharePartitionKey, state_epoch: int, leader_epoch: int, start_offset: int, complete: int,
        batches: Sequence[StateBatch],
    ) -> None:  # fmt: skip
        """Epochs -1: not checked. start_offset -1: as before. complete: the delivery complete count. Codes:
        invalid_request, fenced_leader_epoch, fenced_state_epoch, unknown_topic_or_partition."""
        shard, entry = self._entry(key)
        if entry is None:
            raise BrokerError(
                ErrorCode.invalid_request, "Write operation on uninitialized share partition not allowed."
            )
        before = entry.state
        if leader_epoch != NO_EPOCH:
            _check_leader_epoch(before, leader_epoch)
        _check_state_epoch(before, state_epoch)
        self._check_exists(key)
        update = ShareUpdate(before.snapshot_epoch, before.leader_epoch, start_offset, batches, complete)
        self._update(shard, key, entry, update)

    def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        """The state; a newer epoch of the leader who reads is written first. Codes: invalid_request,
        fenced_leader_epoch, unknown_topic_or_partition."""
        shard, entry = self._entry(key)
        if entry is None:
            raise BrokerError(ErrorCode.invalid_request, "Read operation on uninitialized share partition not allowed.")
        state = entry.state
        _check_leader_epoch(state, leader_epoch)
        self._check_exists(key)
        if leader_epoch not in (NO_EPOCH, state.leader_epoch):
            complete = state.delivery_complete_count
            update = ShareUpdate(state.snapshot_epoch, leader_epoch, state.start_offset, (), complete)
            self._update(shard, key, entry, update)
        return state

    def summary(self, key: SharePartitionKey) -> ShareState:
        """The state, also of unknown ones. Codes: invalid_request, unknown_topic_or_partition."""
        _, entry = self._entry(key)
        self._check_exists(key)
        return UNKNOWN_STATE if entry is None else entry.state

    def delete(self, key: SharePartitionKey) -> None:
        shard, entry = self._entry(key)
        self._check_exists(key)
        if entry is not None:
            self._put(shard, key, _tombstone(key))

    def _entry(self, key: SharePartitionKey) -> tuple[ShareStateShard, _Entry | None]:
        shard = self.runtime.get(self.partition_for(key))
        if key.partition < 0:
            raise BrokerError(ErrorCode.invalid_request, "The partition id cannot be a negative number.")
        return shard, shard.entries.get(key)

    def _check_exists(self, key: SharePartitionKey) -> None:
        topic = self._topics.by_id(key.topic_id)
        if topic is None or key.partition >= topic.partitions:
            raise BrokerError(ErrorCode.unknown_topic_or_partition, UNKNOWN_PARTITION)

    def _update(self, shard: ShareStateShard, key: SharePartitionKey, entry: _Entry, update: ShareUpdate) -> None:
        if shard.needs_snapshot(entry):
            now, epoch = self._clock.now_ms(), update.snapshot_epoch + 1
            state = _merged(entry.state, update)
            state = state._replace(snapshot_epoch=epoch, create_timestamp_ms=now, write_timestamp_ms=now)
            self._put(shard, key, _snapshot(key, state))
        else:
            update = update._replace(batches=combined((), update.batches, update.start_offset))
            self._put(shard, key, (state_key(UPDATE, key), update_value(update)))

    def _put(self, shard: ShareStateShard, key: SharePartitionKey, record: Record) -> None:
        self._write(self.partition_for(key), shard, [record])

    def _write(self, partition: int, shard: ShareStateShard, records: list[Record]) -> None:
        for offset, record in enumerate(records, self.runtime.append(partition, records)):
            shard.replay(offset, record)

    # what happens by itself

    def due(self) -> Generator[None, None, None]:
        """When it is time, snapshot the share partitions whose last snapshot is old, step by step."""
        now = self._clock.monotonic_ms()
        if now >= self._next_cold_ms:
            interval = self._config.share_coordinator_cold_partition_snapshot_interval_ms
            self._next_cold_ms = now + interval
            for partition, shard in self.runtime.served().items():
                steps = self._cold_snapshots(shard, interval)
                yield from self._write_steps(partition, shard, steps, "snapshot what has not changed")

    async def prune_if_due(self) -> None:
        """Prune every share.coordinator.state.topic.prune.interval.ms."""
        now = self._clock.monotonic_ms()
        if now >= self._next_prune_ms:
            self._next_prune_ms = now + self._config.share_coordinator_state_topic_prune_interval_ms
            await self.prune()

    async def prune(self) -> None:
        """Delete the records that later snapshots supersede: each share partition needs its last one and what follows.
        With nothing known any more, the last tombstone stays (Kafka's ShareCoordinatorOffsetsManager)."""
        for partition, shard in list(self.runtime.served().items()):
            snapshots = (entry.snapshot_at for entry in shard.entries.values() if entry.snapshot_at is not None)
            try:
                await self.runtime.log.prune(partition, min(snapshots, default=shard.end))
            except BrokerError as error:
                _log.warning("%s-%d is not pruned: %s", SHARE_STATE_TOPIC, partition, error)

    def on_topics_deleted(self, topics: Collection[UUID]) -> Iterator[None]:
        """The state of their share partitions goes with them, step by step."""
        for partition, shard in self.runtime.served().items():
            steps = (
                [_tombstone(key) for key in keys if key.topic_id in topics and key in shard.entries]
                for keys in _key_steps(shard)
            )
            yield from self._write_steps(partition, shard, steps, "forget deleted topics")

    def _cold_snapshots(self, shard: ShareStateShard, interval_ms: int) -> Iterator[list[Record]]:
        """Snapshots of what was not snapshotted for so long, since nothing before the oldest one can be pruned. None
        while all were made here: then nothing has moved since (ShareCoordinatorShard.snapshotColdPartitions)."""
        for keys in _key_steps(shard):
            states = [shard.entries[key].state for key in keys if key in shard.entries]
            if any(state.create_timestamp_ms == state.write_timestamp_ms for state in states):
                break
            yield []
        else:
            return
        for keys in _key_steps(shard):
            now = self._clock.now_ms()
            states_by_key = [(key, shard.entries[key].state) for key in keys if key in shard.entries]
            yield [
                _snapshot(key, state._replace(snapshot_epoch=state.snapshot_epoch + 1, write_timestamp_ms=now))
                for key, state in states_by_key
                if now - state.write_timestamp_ms >= interval_ms
            ]

    def _write_steps(
        self, partition: int, shard: ShareStateShard, steps: Iterable[list[Record]], what: str
    ) -> Generator[None, None, None]:
        """Write each step's records before the next is made; the rest is dropped once the partition is given up."""
        try:
            for records in steps:
                if records:
                    self._write(partition, shard, records)
                yield
                if self.runtime.if_open(partition) is not shard:
                    return
        except BrokerError as error:
            _log.warning("%s-%d: could not %s: %s", SHARE_STATE_TOPIC, partition, what, error)


def _key_steps(shard: ShareStateShard) -> Iterator[list[SharePartitionKey]]:
    """Keys in lists of bounded length; some may be gone when their turn comes."""
    keys = list(shard.entries)
    for at in range(0, len(keys), KEYS_A_STEP):
        yield keys[at : at + KEYS_A_STEP]


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


def _merged(state: ShareState, update: ShareUpdate) -> ShareState:
    start = state.start_offset if update.start_offset == NO_START_OFFSET else update.start_offset
    return state._replace(
        leader_epoch=state.leader_epoch if update.leader_epoch == NO_EPOCH else update.leader_epoch,
        start_offset=start, batches=tuple(combined(state.batches, update.batches, start)),
        delivery_complete_count=update.delivery_complete_count,
    )  # fmt: skip


def _snapshot(key: SharePartitionKey, state: ShareState) -> Record:
    return state_key(SNAPSHOT, key), snapshot_value(state)


def _tombstone(key: SharePartitionKey) -> Record:
    return state_key(SNAPSHOT, key), None
