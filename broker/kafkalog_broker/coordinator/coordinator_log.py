"""An internal topic as its coordinator sees it: append to and read one of its partitions."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.coordinator.record_batches import OffsetsBatch, ProducerEpoch, Record, decode_batches, encode_batch
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_spark.format.names import OFFSETS_TOPIC, TRANSACTION_TOPIC
from kafkalog_spark.log.write.encoded_batch import EncodedRecords

LogOf = Callable[[str, int], Log]
"""The log of a partition. Raises BrokerError when it is not here."""


class CoordinatorLog:
    """name: of the topic, which FindCoordinator creates. configured_partitions: how many it will have. read_bytes: how
    much of it is read at a time."""

    name: str

    def __init__(
        self, topics: TopicRegistry, log_of: LogOf, clock: Clock, configured_partitions: int, read_bytes: int
    ) -> None:
        self._topics = topics
        self._log_of = log_of
        self._clock = clock
        self._configured_partitions = configured_partitions
        self._read_bytes = read_bytes

    @property
    def partitions(self) -> int:
        topic = self._topics.get(self.name)
        return self._configured_partitions if topic is None else topic.partitions

    def owned(self) -> range:
        """The partitions that are here: all of them, or none before the topic exists."""
        return range(self.partitions if self.name in self._topics else 0)

    def scan(self, partition: int) -> Iterator[OffsetsBatch]:
        """All batches of a partition, in order."""
        log = self.log(partition)
        offset, end = log.log_start_offset, log.high_watermark
        while offset < end:
            found = log.reader.read_range(offset, self._read_bytes, up_to=end, at_least_one=True)
            if not found.chunks:
                return
            yield from decode_batches(found.chunks)
            offset = found.next_offset

    def log(self, partition: int) -> Log:
        """Raises BrokerError coordinator_not_available."""
        try:
            return self._log_of(self.name, partition)
        except BrokerError as error:
            raise BrokerError(ErrorCode.coordinator_not_available, str(error)) from error


# __consumer_offsets as the group coordinator sees it.

_READ_BYTES = 1 << 20


class OffsetsTopic(CoordinatorLog):
    """Has offsets.topic.num.partitions partitions."""

    name = OFFSETS_TOPIC

    def __init__(self, config: BrokerConfig, topics: TopicRegistry, log_of: LogOf, clock: Clock) -> None:
        super().__init__(topics, log_of, clock, config.offsets_topic_num_partitions, _READ_BYTES)

    def append(
        self, partition: int, records: Sequence[Record] | EncodedRecords, transaction: ProducerEpoch | None = None
    ) -> None:
        """Append one batch, in the page cache on return: as safe as a record acknowledged with the default flush
        policy."""
        now_ms = self._clock.now_ms()
        self.log(partition).append_batch(encode_batch(records, now_ms, transaction=transaction), now_ms)


# __transaction_state as the transaction coordinator sees it.


class TransactionsTopic(CoordinatorLog):
    """Has transaction.state.log.num.partitions partitions, read transaction.state.log.load.buffer.size at a time."""

    name = TRANSACTION_TOPIC

    def __init__(self, config: BrokerConfig, topics: TopicRegistry, log_of: LogOf, clock: Clock) -> None:
        partitions = config.transaction_state_log_num_partitions
        super().__init__(topics, log_of, clock, partitions, config.transaction_state_log_load_buffer_size)

    def append(self, partition: int, records: Sequence[Record]) -> None:
        """Append one batch, in the page cache on return; `TransactionEnds` flushes it where flush.messages asks for
        that."""
        self.log(partition).append_records(list(records), self._clock.now_ms())

    def coordinator_epoch(self, partition: int) -> int:
        return self.log(partition).leader_epoch


# Which partition of an internal topic holds a group or a transactional id.

_UNIT = struct.Struct(">H")
_LONGEST_REMEMBERED = 128
"""Characters. Names are looked up again and again; long ones would make what is remembered large."""


def partition_for(key: str, partition_count: int) -> int:
    """Utils.abs(key.hashCode()) % partitions."""
    value = java_hash(key)
    return (0 if value == -(2**31) else abs(value)) % partition_count  # Java cannot negate its smallest integer


def java_hash(text: str) -> int:
    """String.hashCode: over UTF-16 code units, not characters."""
    return _remembered(text) if len(text) <= _LONGEST_REMEMBERED else _computed(text)


def _computed(text: str) -> int:
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for (unit,) in _UNIT.iter_unpack(units):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


_remembered = lru_cache(1 << 12)(_computed)  # a MB, however many names come and go
