"""__share_group_state as the share coordinator sees it."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalog_broker.clock import Clock
from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.coordinators.coordinator_log import CoordinatorLog, LogOf
from kafkalog_broker.coordinators.record_batches import Record, encode_batch
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_spark.log.format.names import SHARE_STATE_TOPIC


class ShareStateTopic(CoordinatorLog):
    """share.coordinator.state.topic.num.partitions partitions, read share.coordinator.load.buffer.size at a time."""

    name = SHARE_STATE_TOPIC

    def __init__(self, config: BrokerConfig, topics: TopicRegistry, log_of: LogOf, clock: Clock) -> None:
        partitions = config.share_coordinator_state_topic_num_partitions
        super().__init__(topics, log_of, clock, partitions, config.share_coordinator_load_buffer_size)

    def append(self, partition: int, records: Sequence[Record]) -> int:
        """One batch, in the page cache on return; the offset of its first record."""
        now_ms = self._clock.now_ms()
        return self.log(partition).append_batch(encode_batch(records, now_ms), now_ms).base_offset

    def prune(self, partition: int, offset: int) -> None:
        """Records below `offset` are superseded. Raises BrokerError."""
        log = self.log(partition)
        if log.log_start_offset < offset <= log.high_watermark:
            log.delete_records(offset)
