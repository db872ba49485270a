"""An internal topic as its coordinator sees it: append to and read one of its partitions."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from kafkalog_broker.coordinator.record_batches import OffsetsBatch, ProducerEpoch, Record, decode_batches, encode_batch
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_spark.log.write.encoded_batch import EncodedRecords

LogOf = Callable[[str, int], Log]
"""The log of a partition. Raises BrokerError when it is not here."""


class CoordinatorLog:
    """Partitions of the internal topic `name`, which FindCoordinator creates.

    configured_partitions: how many it will have. read_bytes: how much of it is read at a time. Methods raise
    BrokerError coordinator_not_available where a partition is not here, and what its log raises.
    """

    def __init__(
        self,
        name: str,
        topics: TopicRegistry,
        log_of: LogOf,
        clock: Clock,
        configured_partitions: int,
        read_bytes: int = 1 << 20,
    ) -> None:
        self.name = name
        self._topics = topics
        self._log_of = log_of
        self._clock = clock
        self._configured_partitions = configured_partitions
        self._read_bytes = read_bytes

    @property
    def partitions(self) -> int:
        """Number of partitions that the topic has, or will have."""
        topic = self._topics.get(self.name)
        return self._configured_partitions if topic is None else topic.partitions

    def owned(self) -> range:
        """Partitions that are here: all of them, or none before the topic exists."""
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

    def append(
        self, partition: int, records: Sequence[Record] | EncodedRecords, transaction: ProducerEpoch | None = None
    ) -> int:
        """Append one batch; the offset of its first record.

        It is in the page cache on return: as safe as a record acknowledged with the default flush policy. Whoever needs
        more asks DueFlushes afterwards.
        """
        now_ms = self._clock.now_ms()
        batch = encode_batch(records, now_ms, transaction=transaction)
        return self.log(partition).append_batch(batch, now_ms).base_offset

    def prune(self, partition: int, offset: int) -> None:
        """Delete the records below `offset`."""
        log = self.log(partition)
        if log.log_start_offset < offset <= log.high_watermark:
            log.delete_records(offset)

    def leader_epoch(self, partition: int) -> int:
        """Leader epoch of a partition: transaction markers of an older one are refused."""
        return self.log(partition).leader_epoch

    def log(self, partition: int) -> Log:
        """The log of a partition."""
        try:
            return self._log_of(self.name, partition)
        except BrokerError as error:
            raise BrokerError(ErrorCode.coordinator_not_available, str(error)) from error


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
