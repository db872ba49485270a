"""A transaction coordinator without a broker: __transaction_state in memory, and partitions that may refuse markers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.coordinator.coordinator_log import CoordinatorLog
from kafkalog_broker.coordinator.coordinator_record import ProducerIdAndEpoch, Record
from kafkalog_broker.coordinator.record_batch import CoordinatorBatch, decode_batches, encode_batch
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.transactions.transaction_coordinator import TransactionCoordinator
from kafkalog_broker.transactions.transaction_marker import EndMarker
from kafkalog_broker.transactions.transaction_metadata import TopicPartition
from kafkalog_broker.transactions.transaction_records import load
from kafkalog_spark.format.names import TRANSACTION_TOPIC
from kafkalog_spark.log.write.encoded_batch import EncodedRecords
from tests.broker.manual_clock import ManualClock

ORDERS = [TopicPartition("orders", number) for number in range(3)]
ALL = frozenset(ORDERS)


class MemoryStateLog(CoordinatorLog):
    """__transaction_state in memory. Appends raise `failure`, if it is set."""

    def __init__(self, clock: ManualClock, partitions: int = 1) -> None:
        self._clock = clock
        self.name = TRANSACTION_TOPIC
        self._partitions = partitions
        self.batches: dict[int, list[bytes]] = {}
        self.failure: ErrorCode | None = None
        self.epoch = 7

    @property
    def partitions(self) -> int:
        return self._partitions

    def owned(self) -> range:
        return range(self._partitions)

    def append(
        self, partition: int, records: Sequence[Record] | EncodedRecords,
        transaction: ProducerIdAndEpoch | None = None, *, is_awaited: bool = True,
    ) -> int:  # fmt: skip
        if self.failure is not None:
            raise BrokerError(self.failure, "the log says no")
        self.batches.setdefault(partition, []).append(encode_batch(records, self._clock.now_ms()))
        return -1

    def scan(self, partition: int) -> Iterator[CoordinatorBatch]:
        return decode_batches(self.batches.get(partition, []))

    def leader_epoch(self, partition: int) -> int:
        return self.epoch


class Ledger:
    """A coordinator, the `markers` that it has written in order, and the error of partitions that refuse markers.
    `properties` are Kafka's, by name."""

    def __init__(self, properties: Mapping[str, object] | None = None) -> None:
        self.clock = ManualClock()
        self.state = MemoryStateLog(self.clock)
        self.markers: list[tuple[TopicPartition, EndMarker]] = []
        self.refuses: dict[TopicPartition, ErrorCode] = {}
        self._config = BrokerConfig.from_properties(properties or {})
        self._next_id = 100
        self.coordinator = self._made()

    def _made(self) -> TransactionCoordinator:
        return TransactionCoordinator(
            self._config, clock=self.clock, state_log=self.state, write_marker=self._write,
            new_producer_id=self._new_id,
        )  # fmt: skip

    def crash(self) -> None:
        """Replace the coordinator by one that has loaded the log."""
        self.coordinator = self._made()
        for partition in self.state.owned():
            self.coordinator.runtime.serve(partition, load(self.state.scan(partition)))

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def _write(self, partition: TopicPartition, marker: EndMarker) -> None:
        if partition in self.refuses:
            raise BrokerError(self.refuses[partition], "no marker here")
        self.markers.append((partition, marker))

    def complete(self, transactional_id: str) -> bool:
        """Complete a transaction like TransactionEnds.complete, without flushes."""
        if not self.coordinator.is_prepared(transactional_id):
            return True
        return self.coordinator.complete(transactional_id, self.coordinator.write_markers(transactional_id))

    def complete_all(self) -> None:
        for transactional_id in self.coordinator.prepared:
            self.complete(transactional_id)
