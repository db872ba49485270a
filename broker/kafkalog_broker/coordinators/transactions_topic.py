"""__transaction_state as the transaction coordinator sees it."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalog_broker.clock import Clock
from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.coordinators.coordinator_log import CoordinatorLog, LogOf
from kafkalog_broker.coordinators.record_batches import Record
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_spark.log.format.names import TRANSACTION_TOPIC


class TransactionsTopic(CoordinatorLog):
    """Has transaction.state.log.num.partitions partitions, read transaction.state.log.load.buffer.size at a time."""

    name = TRANSACTION_TOPIC

    def __init__(self, config: BrokerConfig, topics: TopicRegistry, log_of: LogOf, clock: Clock) -> None:
        partitions = config.transaction_state_log_num_partitions
        super().__init__(topics, log_of, clock, partitions, config.transaction_state_log_load_buffer_size)

    def append(self, partition: int, records: Sequence[Record]) -> None:
        """One batch, in the page cache on return; `TransactionEnds` flushes it where flush.messages asks for that."""
        self.log(partition).append_records(list(records), self._clock.now_ms())

    def coordinator_epoch(self, partition: int) -> int:
        return self.log(partition).leader_epoch
