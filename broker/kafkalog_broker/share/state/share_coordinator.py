"""The share coordinator: where the state of a share partition is kept, and what is written there.

Kafka's brokers ask it over the network (InitializeShareGroupState and its kin); the parts of this one call it. All
calls come from the event loop's thread, and none of them waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from uuid import UUID

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.coordinator.coordinator_log import CoordinatorLog, OffsetsBatch, Record
from kafkalog_broker.coordinator.runtime import CoordinatorRuntime
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.share.state.state_records import SharePartitionKey, ShareState
from kafkalog_broker.share.state.state_shard import StateShard, Summary, WriteState
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.names import SHARE_STATE_TOPIC
from kafkalog_spark.format.partition_metadata import uuid_to_text

_log = logging.getLogger(__name__)


class ShareCoordinator:
    """partitions_of: how many partitions a topic has, None when there is none of that id."""

    def __init__(
        self, config: BrokerConfig, clock: Clock, log: CoordinatorLog, partitions_of: Callable[[UUID], int | None]
    ) -> None:
        self._config = config
        self._clock = clock
        self._partitions_of = partitions_of
        self.runtime: CoordinatorRuntime[StateShard, StateShard] = CoordinatorRuntime(
            log, self._load, lambda partition, shard: shard
        )
        now = clock.monotonic_ms()
        self._next_prune_ms = now + config.share_coordinator_state_topic_prune_interval_ms
        self._next_cold_ms = now + config.share_coordinator_cold_partition_snapshot_interval_ms

    def _load(self, batches: Iterable[OffsetsBatch]) -> StateShard:
        """A shard with the records of a partition replayed; in any thread. Records that cannot be read are logged."""
        shard = StateShard(
            self._config.share_coordinator_snapshot_update_records_per_snapshot,
            self._partitions_of,
            self._clock.now_ms,
        )
        for batch in batches:
            for delta, record in enumerate(batch.records):
                try:
                    shard.replay(batch.base_offset + delta, record)
                except KafkalogError as error:
                    _log.error("a record of %s is left out: %s", SHARE_STATE_TOPIC, error)
        return shard

    def partition_for(self, key: SharePartitionKey) -> int:
        """Which partition of the topic a share partition lives in: by `group:topic id:partition`."""
        text = f"{key.group_id}:{uuid_to_text(key.topic_id)}:{key.partition}"
        return self.runtime.partition_for(text)

    def shutdown(self) -> None:
        """From now on everything is COORDINATOR_NOT_AVAILABLE."""
        self.runtime.stop()

    # requests; each raises BrokerError, and then nothing has changed

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        partition, shard = self._of(key)
        self._write(partition, shard, [shard.initialize(key, state_epoch, start_offset)])

    def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        partition, shard = self._of(key)
        state, record = shard.read(key, leader_epoch)
        if record is not None:
            self._write(partition, shard, [record])
        return state

    def write(self, key: SharePartitionKey, change: WriteState) -> None:
        partition, shard = self._of(key)
        self._write(partition, shard, [shard.write(key, change)])

    def summary(self, key: SharePartitionKey) -> Summary:
        return self._of(key)[1].summary(key)

    def delete(self, key: SharePartitionKey) -> None:
        partition, shard = self._of(key)
        record = shard.delete(key)
        if record is not None:
            self._write(partition, shard, [record])

    # what happens by itself

    def due(self) -> Generator[None, None, None]:
        """Prune, and snapshot what was not for long, when it is time: step by step."""
        now = self._clock.monotonic_ms()
        if now >= self._next_cold_ms:
            interval = self._config.share_coordinator_cold_partition_snapshot_interval_ms
            self._next_cold_ms = now + interval
            for partition, shard in self.runtime.served().items():
                yield from self._try(partition, shard, shard.cold(interval), "snapshot what has not changed")
        if now >= self._next_prune_ms:
            self._next_prune_ms = now + self._config.share_coordinator_state_topic_prune_interval_ms
            self.prune()

    def prune(self) -> None:
        """Delete the records that later snapshots supersede."""
        for partition, shard in self.runtime.served().items():
            try:
                self.runtime.log.prune(partition, shard.redundant.first_needed())
            except BrokerError as error:
                _log.warning("%s-%d is not pruned: %s", SHARE_STATE_TOPIC, partition, error)

    def on_topics_deleted(self, topics: Collection[UUID]) -> Iterator[None]:
        """The state of their share partitions goes with them, step by step."""
        for partition, shard in self.runtime.served().items():
            yield from self._try(partition, shard, shard.of_topics(topics), "forget deleted topics")

    def _try(
        self, partition: int, shard: StateShard, pieces: Iterable[list[Record]], what: str
    ) -> Generator[None, None, None]:
        """Write the pieces, a step for each; not those that are left when the partition is served no more."""
        try:
            for records in pieces:
                if records:
                    self._write(partition, shard, records)
                yield
                if self.runtime.if_open(partition) is not shard:
                    return
        except BrokerError as error:
            _log.warning("%s-%d: could not %s: %s", SHARE_STATE_TOPIC, partition, what, error)

    def _of(self, key: SharePartitionKey) -> tuple[int, StateShard]:
        partition = self.partition_for(key)
        return partition, self.runtime.get(partition)

    def _write(self, partition: int, shard: StateShard, records: list[Record]) -> None:
        first = self.runtime.write(partition, records)
        for delta, record in enumerate(records):
            shard.replay(first + delta, record)
