"""__transaction_state as the transaction coordinator sees it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kafkalog_broker.config.internal_topics import TRANSACTION_TOPIC
from kafkalog_broker.coordinator_log import CoordinatorLog
from kafkalog_broker.groups.offset_batches import OffsetsBatch, Record


class TransactionsTopic(CoordinatorLog):
    """Has transaction.state.log.num.partitions partitions."""

    name = TRANSACTION_TOPIC

    @property
    def configured_partitions(self) -> int:
        return self._broker.config.transaction_state_log_num_partitions

    def append(self, partition: int, records: Sequence[Record]) -> None:
        """One batch, in the page cache on return; `TransactionEnds` flushes it where flush.messages asks for that."""
        self.log(partition).append_records(list(records), self._broker.clock.now_ms())

    def scan(self, partition: int, read_bytes: int = 0) -> Iterator[OffsetsBatch]:
        """All batches; transaction.state.log.load.buffer.size at a time."""
        return super().scan(partition, read_bytes or self._broker.config.transaction_state_log_load_buffer_size)

    def coordinator_epoch(self, partition: int) -> int:
        return self.log(partition).leader_epoch
