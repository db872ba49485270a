"""The transaction of a Produce request, which the appender consults before it appends a transactional batch."""

from __future__ import annotations

from kafkalog_broker.broker import Broker
from kafkalog_broker.coordinator.coordinator_record import ProducerIdAndEpoch
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.transactions.transaction_metadata import TopicPartition
from kafkalog_broker.transactions.transaction_verification import SupportedOperation, produce_error
from kafkalog_spark.format.batch_header import BatchHeader


class ProduceTransaction:
    """Implements `ProducerTransaction` with the transaction coordinator."""

    __slots__ = ("_broker", "_operation", "_transactional_id")

    def __init__(self, broker: Broker, transactional_id: str, operation: SupportedOperation) -> None:
        self._broker = broker
        self._transactional_id = transactional_id
        self._operation = operation

    def admits(self, log: Log, header: BatchHeader) -> bool:
        """Return True if the batch may be appended.

        It may if it continues a transaction that is open in the partition, or if the coordinator has added the
        partition to the transaction and the record of this is on disk. If the record is not on disk yet, the result is
        False: call `flush`, then ask again.

        Raises:
            BrokerError: If the coordinator refuses the batch.
        """
        broker = self._broker
        producer = ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
        state = log.producer_state
        if not broker.config.transaction_partition_verification_enable or state.has_open_transaction(*producer):
            return True
        state.verifications.begin(
            *producer, header.base_sequence, broker.clock.now_ms(),
            adds_partitions=self._operation is SupportedOperation.ADD_PARTITION,
        )  # fmt: skip
        partition = TopicPartition(log.topic, log.partition)
        try:
            broker.transactions.verify(self._transactional_id, producer, partition, self._operation)
            return broker.transactions.unflushed(self._transactional_id) is None
        except BrokerError as error:
            raise produce_error(error, self._operation) from error

    async def flush(self) -> None:
        """Flush the coordinator's last record of the transaction.

        Raises:
            BrokerError: If the flush failed. The producer retries.
        """
        try:
            await self._broker.transaction_ends.flush(self._transactional_id)
        except BrokerError as error:
            raise produce_error(error, self._operation) from error
