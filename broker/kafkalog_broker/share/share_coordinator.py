"""The share coordinator, which persists the state of share partitions in __share_group_state (Kafka's
ShareCoordinatorService).

Other brokers send requests such as InitializeShareGroupState; this broker calls the methods. They must be called from
the event loop and do not wait.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from uuid import UUID

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.coordinator.coordinator_log import CoordinatorLog
from kafkalog_broker.coordinator.coordinator_result import CoordinatorResult
from kafkalog_broker.coordinator.coordinator_runtime import CoordinatorRuntime
from kafkalog_broker.coordinator.record_batch import CoordinatorBatch
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.share.share_state import SharePartitionKey, ShareState, StateBatch
from kafkalog_broker.share.share_state_records import ShareRecord, decode_record
from kafkalog_broker.share.share_state_shard import ShareStateShard
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.names import SHARE_STATE_TOPIC
from kafkalog_spark.format.partition_metadata import uuid_to_text

_log = logging.getLogger(__name__)


class ShareCoordinator:
    """Runs the operations of `ShareStateShard` on the shard of a share partition, and periodic maintenance.

    The operations raise the BrokerErrors of `ShareStateShard` and of `CoordinatorRuntime.run`; then the state has not
    changed.
    """

    def __init__(self, config: BrokerConfig, clock: Clock, log: CoordinatorLog, topics: TopicRegistry) -> None:
        """`log` is the topic __share_group_state."""
        self._config = config
        self._clock = clock
        self._topics = topics
        self.runtime: CoordinatorRuntime[ShareStateShard, ShareStateShard] = CoordinatorRuntime(
            log, self._load, lambda partition, shard: shard
        )
        now_ms = clock.monotonic_ms()
        self._next_prune_ms = now_ms + config.share_coordinator_state_topic_prune_interval_ms
        self._next_cold_snapshots_ms = now_ms + config.share_coordinator_cold_partition_snapshot_interval_ms

    def _load(self, batches: Iterable[CoordinatorBatch]) -> ShareStateShard:
        """Replay the records of a partition, in any thread. Records that cannot be read are logged and skipped."""
        updates_per_snapshot = self._config.share_coordinator_snapshot_update_records_per_snapshot
        shard = ShareStateShard(updates_per_snapshot, self._clock, self._topics)
        for batch in batches:
            for offset, encoded in enumerate(batch.records, batch.base_offset):
                try:
                    record = decode_record(encoded)
                except KafkalogError as error:
                    _log.error("%s: the record at offset %d is skipped: %s", SHARE_STATE_TOPIC, offset, error)
                else:
                    if record is not None:
                        shard.replay(offset, record)
        return shard

    def close_all(self) -> None:
        """Forget the state of all share partitions, because __share_group_state was deleted."""
        self.runtime.unload_all()

    def partition_for(self, key: SharePartitionKey) -> int:
        """Return the partition of __share_group_state that has the state of a share partition."""
        return self.runtime.partition_for(f"{key.group_id}:{uuid_to_text(key.topic_id)}:{key.partition}")

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        """Create or reset the state of a share partition, see `ShareStateShard.initialize`."""
        self.runtime.run(self.partition_for(key), lambda shard: shard.initialize(key, state_epoch, start_offset))

    def write(
        self, key: SharePartitionKey, *, state_epoch: int, leader_epoch: int, start_offset: int,
        delivery_complete_count: int, batches: Sequence[StateBatch],
    ) -> None:  # fmt: skip
        """Change the state of a share partition, see `ShareStateShard.write`."""
        self.runtime.run(
            self.partition_for(key),
            lambda shard: shard.write(
                key, state_epoch=state_epoch, leader_epoch=leader_epoch, start_offset=start_offset,
                delivery_complete_count=delivery_complete_count, batches=batches,
            ),
        )  # fmt: skip

    def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        """Return the state of a share partition to its leader, see `ShareStateShard.read`."""
        return self.runtime.run(self.partition_for(key), lambda shard: shard.read(key, leader_epoch))

    def summary(self, key: SharePartitionKey) -> ShareState:
        """Return the state of a share partition; UNKNOWN_STATE if it has none."""
        return self.runtime.get(self.partition_for(key)).summary(key)

    def delete(self, key: SharePartitionKey) -> None:
        """Delete the state of a share partition. No-op if it has none."""
        self.runtime.run(self.partition_for(key), lambda shard: shard.delete(key))

    def snapshot_cold_if_due(self) -> Generator[None, None, None]:
        """Write snapshots of share partitions that have not changed for a long time, in steps, every
        share.coordinator.cold.partition.snapshot.interval.ms."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_cold_snapshots_ms:
            interval_ms = self._config.share_coordinator_cold_partition_snapshot_interval_ms
            self._next_cold_snapshots_ms = now_ms + interval_ms
            for partition, shard in self.runtime.loaded_shards().items():
                steps = shard.cold_snapshots(interval_ms)
                yield from self._commit_steps(partition, shard, steps, "snapshots of unchanged share partitions")

    async def prune_if_due(self) -> None:
        """Prune the topic every share.coordinator.state.topic.prune.interval.ms."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_prune_ms:
            self._next_prune_ms = now_ms + self._config.share_coordinator_state_topic_prune_interval_ms
            await self.prune()

    async def prune(self) -> None:
        """Delete records that are superseded by a later snapshot."""
        for partition, shard in list(self.runtime.loaded_shards().items()):
            try:
                await self.runtime.log.prune(partition, shard.prune_offset())
            except BrokerError as error:
                _log.warning("%s-%d cannot be pruned: %s", SHARE_STATE_TOPIC, partition, error)

    def on_topics_deleted(self, topics: Collection[UUID]) -> Iterator[None]:
        """Delete the state of all share partitions of these topics, in steps."""
        for partition, shard in self.runtime.loaded_shards().items():
            steps = shard.delete_topics(topics)
            yield from self._commit_steps(partition, shard, steps, "deletions of the state of deleted topics")

    def _commit_steps(
        self, partition: int, shard: ShareStateShard, steps: Iterable[Sequence[ShareRecord]], operation: str
    ) -> Generator[None, None, None]:
        """Commit the records of each step before the next step. Stop if the partition is unloaded between two steps."""
        try:
            for records in steps:
                self.runtime.commit(partition, CoordinatorResult(records, None))
                yield
                if self.runtime.get_if_loaded(partition) is not shard:
                    return
        except BrokerError as error:
            _log.warning("%s-%d: %s could not be written: %s", SHARE_STATE_TOPIC, partition, operation, error)
