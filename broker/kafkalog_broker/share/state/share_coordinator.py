"""The share coordinator: where the state of a share partition is kept, and what is written there.

Kafka's brokers ask it over the network (InitializeShareGroupState and its kin); the parts of this one call it. All
calls come from the event loop's thread, and none of them waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from typing import Protocol
from uuid import UUID

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.coordinator.coordinator_log import CoordinatorLog, LogOf, partition_for
from kafkalog_broker.coordinator.record_batches import OffsetsBatch, Record, encode_batch
from kafkalog_broker.coordinator.shards import Shards, write_error
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.share.state.state_records import SharePartitionKey, ShareState
from kafkalog_broker.share.state.state_shard import StateShard, Summary, WriteState
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.names import SHARE_STATE_TOPIC
from kafkalog_spark.format.partition_metadata import uuid_to_text

_log = logging.getLogger(__name__)


class StateTopic(Protocol):
    """__share_group_state: `append` returns the offset of the first record. All raise BrokerError."""

    @property
    def partitions(self) -> int: ...

    def owned(self) -> Iterable[int]: ...

    def scan(self, partition: int, /) -> Iterable[OffsetsBatch]: ...

    def append(self, partition: int, records: Sequence[Record], /) -> int: ...

    def prune(self, partition: int, offset: int, /) -> None: ...


class ShareCoordinator:
    """partitions_of: how many partitions a topic has, None when there is none of that id."""

    def __init__(
        self, config: BrokerConfig, clock: Clock, topic: StateTopic, partitions_of: Callable[[UUID], int | None]
    ) -> None:
        self._config = config
        self._clock = clock
        self._topic = topic
        self._partitions_of = partitions_of
        self.shards: Shards[StateShard, StateShard] = Shards(
            SHARE_STATE_TOPIC, self.load, topic.owned, lambda partition, shard: shard
        )
        now = clock.monotonic_ms()
        self._next_prune_ms = now + config.share_coordinator_state_topic_prune_interval_ms
        self._next_cold_ms = now + config.share_coordinator_cold_partition_snapshot_interval_ms

    def load(self, partition: int) -> StateShard:
        """Read a partition from its beginning; in any thread. A record that cannot be read is logged and left out."""
        shard = StateShard(
            self._config.share_coordinator_snapshot_update_records_per_snapshot,
            self._partitions_of,
            self._clock.now_ms,
        )
        for batch in self._topic.scan(partition):
            for delta, record in enumerate(batch.records):
                try:
                    shard.replay(batch.base_offset + delta, record)
                except KafkalogError as error:
                    _log.error("a record of %s is left out: %s", SHARE_STATE_TOPIC, error)
        return shard

    def partition_for(self, key: SharePartitionKey) -> int:
        """Which partition of the topic a share partition lives in: by `group:topic id:partition`."""
        text = f"{key.group_id}:{uuid_to_text(key.topic_id)}:{key.partition}"
        return partition_for(text, self._topic.partitions)

    def shutdown(self) -> None:
        """From now on everything is COORDINATOR_NOT_AVAILABLE."""
        self.shards.stop()

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
            for partition, shard in self.shards.served().items():
                yield from self._try(partition, shard, shard.cold(interval), "snapshot what has not changed")
        if now >= self._next_prune_ms:
            self._next_prune_ms = now + self._config.share_coordinator_state_topic_prune_interval_ms
            self.prune()

    def prune(self) -> None:
        """Delete the records that later snapshots supersede."""
        for partition, shard in self.shards.served().items():
            try:
                self._topic.prune(partition, shard.redundant.first_needed())
            except BrokerError as error:
                _log.warning("%s-%d is not pruned: %s", SHARE_STATE_TOPIC, partition, error)

    def on_topics_deleted(self, topics: Collection[UUID]) -> Iterator[None]:
        """The state of their share partitions goes with them, step by step."""
        for partition, shard in self.shards.served().items():
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
                if self.shards.if_open(partition) is not shard:
                    return
        except BrokerError as error:
            _log.warning("%s-%d: could not %s: %s", SHARE_STATE_TOPIC, partition, what, error)

    def _of(self, key: SharePartitionKey) -> tuple[int, StateShard]:
        partition = self.partition_for(key)
        return partition, self.shards.get(partition)

    def _write(self, partition: int, shard: StateShard, records: list[Record]) -> None:
        try:
            first = self._topic.append(partition, records)
        except BrokerError as error:
            raise BrokerError(write_error(error.code), error.what) from error
        for delta, record in enumerate(records):
            shard.replay(first + delta, record)


# __share_group_state as the share coordinator sees it.


class ShareStateTopic(CoordinatorLog):
    """share.coordinator.state.topic.num.partitions partitions, read share.coordinator.load.buffer.size at a time."""

    name = SHARE_STATE_TOPIC

    def __init__(self, config: BrokerConfig, topics: TopicRegistry, log_of: LogOf, clock: Clock) -> None:
        partitions = config.share_coordinator_state_topic_num_partitions
        super().__init__(topics, log_of, clock, partitions, config.share_coordinator_load_buffer_size)

    def append(self, partition: int, records: Sequence[Record]) -> int:
        """Append one batch, in the page cache on return; the offset of its first record."""
        now_ms = self._clock.now_ms()
        return self.log(partition).append_batch(encode_batch(records, now_ms), now_ms).base_offset

    def prune(self, partition: int, offset: int) -> None:
        """Records below `offset` are superseded. Raises BrokerError."""
        log = self.log(partition)
        if log.log_start_offset < offset <= log.high_watermark:
            log.delete_records(offset)
