"""__consumer_offsets as the group coordinator sees it: append to and read one of its partitions."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalog_broker.config.internal_topics import OFFSETS_TOPIC
from kafkalog_broker.coordinator_log import CoordinatorLog
from kafkalog_broker.groups.offset_batches import EncodedRecords, ProducerEpoch, Record, encode_batch


class OffsetsTopic(CoordinatorLog):
    """Has offsets.topic.num.partitions partitions."""

    name = OFFSETS_TOPIC

    @property
    def configured_partitions(self) -> int:
        return self._broker.config.offsets_topic_num_partitions

    def append(
        self, partition: int, records: Sequence[Record] | EncodedRecords, transaction: ProducerEpoch | None = None
    ) -> None:
        """One batch. In the page cache on return: as safe as a record acknowledged with the default flush policy."""
        now_ms = self._broker.clock.now_ms()
        self.log(partition).append_batch(encode_batch(records, now_ms, transaction=transaction), now_ms)
