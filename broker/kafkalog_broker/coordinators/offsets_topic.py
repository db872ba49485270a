"""__consumer_offsets as the group coordinator sees it."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalog_broker.clock import Clock
from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.coordinators.coordinator_log import CoordinatorLog, LogOf
from kafkalog_broker.coordinators.record_batches import ProducerEpoch, Record, encode_batch
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_spark.log.format.names import OFFSETS_TOPIC
from kafkalog_spark.log.write.encoded_batch import EncodedRecords

_READ_BYTES = 1 << 20


class OffsetsTopic(CoordinatorLog):
    """Has offsets.topic.num.partitions partitions."""

    name = OFFSETS_TOPIC

    def __init__(self, config: BrokerConfig, topics: TopicRegistry, log_of: LogOf, clock: Clock) -> None:
        super().__init__(topics, log_of, clock, config.offsets_topic_num_partitions, _READ_BYTES)

    def append(
        self, partition: int, records: Sequence[Record] | EncodedRecords, transaction: ProducerEpoch | None = None
    ) -> None:
        """One batch. In the page cache on return: as safe as a record acknowledged with the default flush policy."""
        now_ms = self._clock.now_ms()
        self.log(partition).append_batch(encode_batch(records, now_ms, transaction=transaction), now_ms)
