"""An internal topic as its coordinator sees it: append to and read one of its partitions."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from kafkalog_broker.coordinator.log_flushes import LogFlushes
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_spark.errors import CorruptBatch, InvalidRecord
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import BatchHeader, check_crc, control_type
from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.format.messages import Message
from kafkalog_spark.format.records import RecordView, read_records
from kafkalog_spark.log.decode.decompress import Output, decompress
from kafkalog_spark.log.decode.scratch import Scratch
from kafkalog_spark.log.write.encoded_batch import EncodedRecords, batches_of, build_batch

# Record batches of __consumer_offsets: a few small records, written and read in plain Python.
#
# The kernels of kafkalog_spark.log are for millions of records; loading them costs more time and memory than a
# coordinator's records ever do.

_logger = logging.getLogger(__name__)

Record = tuple[bytes, bytes | None]  # key, and value or None for a tombstone


def encoded(kind: Message, values: Sequence[Any], version: int | None = None) -> bytes:
    """As Message.encode. Raises BrokerError as `too_long`."""
    try:
        return kind.encode(values, version)
    except InvalidRecord as error:
        raise too_long(error) from None


def too_long(error: InvalidRecord) -> BrokerError:
    """A text does not fit into a record: a flexible request can name what a key cannot hold. Kafka fails there too."""
    return BrokerError(ErrorCode.unknown_server_error, error.what)


TOMBSTONES_A_WRITE = 1_000  # some 100 KB a batch, far from message.max.bytes

_BASE_SEQUENCE = 0  # Kafka's CoordinatorRuntime gives its batches 0 although no producer counts them


class ProducerIdAndEpoch(NamedTuple):
    """A producer, whose transaction a batch may belong to."""

    producer_id: int
    epoch: int


def encode_batch(
    records: Sequence[Record] | EncodedRecords,
    timestamp_ms: int,
    *,
    base_offset: int = 0,
    leader_epoch: int = 0,
    transaction: ProducerIdAndEpoch | None = None,
) -> bytes:
    """As build_batch. transaction: the batch is part of that producer's open transaction."""
    producer_id, epoch = transaction or (layout.NO_PRODUCER_ID, layout.NO_PRODUCER_EPOCH)
    return build_batch(
        records, timestamp_ms, base_offset=base_offset, leader_epoch=leader_epoch,
        attributes=0 if transaction is None else layout.ATTRIBUTE_TRANSACTIONAL, producer_id=producer_id,
        producer_epoch=epoch, base_sequence=_BASE_SEQUENCE,
    ).data  # fmt: skip


@dataclass(frozen=True, slots=True)
class OffsetsBatch:
    """A batch that has been read. A marker that ends a transaction has a control type and no records."""

    base_offset: int
    producer_id: int
    is_transactional: bool
    control: ControlType | None
    records: list[Record]


def decode_batches(chunks: Iterable[bytes | memoryview]) -> Iterator[OffsetsBatch]:
    """The batches in `chunks`, each of which holds whole v2 batches. Raises CorruptBatch for damage."""
    for chunk in chunks:
        for data, header in batches_of(chunk):
            if header.magic != 2:
                raise CorruptBatch(f"a batch of format v{header.magic}, expected v2", offset=header.base_offset)
            check_crc(header, data)
            is_marker = header.is_control and header.record_count > 0  # the cleaner leaves empty ones
            control = ControlType(control_type(data)) if is_marker else None
            records = [] if header.is_control or not header.record_count else _records(header, data)
            yield OffsetsBatch(header.base_offset, header.producer_id, header.is_transactional, control, records)


def record_values(chunks: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Record values of a topic without keys; each chunk holds whole v2 batches. Raises CorruptBatch for damage."""
    for chunk in chunks:
        for data, header in batches_of(chunk):
            check_crc(header, data)
            if not header.is_control and header.record_count:
                payload, views = _views(header, data)
                yield from (
                    bytes(payload[view.value_at : view.value_at + view.value_size])
                    for view in views
                    if view.value_size >= 0
                )


def _views(header: BatchHeader, data: bytes) -> tuple[memoryview, list[RecordView]]:
    payload = memoryview(data)[layout.RECORDS_AT :]
    if header.codec:
        scratch = Scratch()
        end = decompress(header.codec, payload, Output(scratch, 0, layout.MAX_DECOMPRESSED))
        payload = memoryview(bytes(scratch.room(0, end)))
    try:
        return payload, list(read_records(payload, header.record_count, header.base_timestamp))
    except CorruptBatch as error:
        raise error.at(offset=header.base_offset) from None


def _records(header: BatchHeader, data: bytes) -> list[Record]:
    payload, views = _views(header, data)
    with_key = [view for view in views if view.key_size >= 0]
    if len(with_key) < len(views):
        # No coordinator wrote it, but the rest of the partition is to be served all the same.
        _logger.error(
            "%d of the %d records at offset %d have no key, and are left out: they are no coordinator's",
            len(views) - len(with_key), len(views), header.base_offset,
        )  # fmt: skip
    return [
        (
            bytes(payload[view.key_at : view.key_at + view.key_size]),
            None if view.value_size < 0 else bytes(payload[view.value_at : view.value_at + view.value_size]),
        )
        for view in with_key
    ]


LogOf = Callable[[str, int], Log]  # the log of a partition. Raises BrokerError when it is not here.


class CoordinatorLog:
    """Partitions of the internal topic `name`, which FindCoordinator creates. configured_partitions: how many it will
    have. read_bytes: how much of it is read at a time. flushes: where logs with flush.messages=1 are registered; None
    for a caller that flushes itself. Methods raise BrokerError coordinator_not_available where a partition is not here,
    and what its log raises."""

    _flushes: LogFlushes | None = None

    def __init__(
        self,
        name: str,
        topics: TopicRegistry,
        log_of: LogOf,
        clock: Clock,
        configured_partitions: int,
        read_bytes: int = 1 << 20,
        flushes: LogFlushes | None = None,
    ) -> None:
        self.name = name
        self._topics = topics
        self._log_of = log_of
        self._clock = clock
        self._configured_partitions = configured_partitions
        self._read_bytes = read_bytes
        self._flushes = flushes

    @property
    def partitions(self) -> int:
        """Number of partitions that the topic has, or will have."""
        topic = self._topics.get(self.name)
        return self._configured_partitions if topic is None else topic.partitions

    def owned(self) -> range:
        """Partitions that are here: all of them, or none before the topic exists."""
        return range(self.partitions if self.name in self._topics else 0)

    def scan(self, partition: int) -> Iterator[OffsetsBatch]:
        return decode_batches(self.log(partition).chunks(self._read_bytes))

    def append(
        self, partition: int, records: Sequence[Record] | EncodedRecords,
        transaction: ProducerIdAndEpoch | None = None, *, is_awaited: bool = True,
    ) -> int:  # fmt: skip
        """Append one batch to the page cache; the offset of its first record.

        With flush.messages=1 the log is registered, so that no response leaves before the batch is on disk. A caller
        that writes to another log afterwards (a batch of a transaction, a marker) waits for the flush itself.

        Args:
            is_awaited: False for a record that no response promises. It is flushed with a later one, or within a
                second by housekeeping.
        """
        now_ms = self._clock.now_ms()
        batch = encode_batch(records, now_ms, transaction=transaction)
        log = self.log(partition)
        base_offset = log.append_batch(batch, now_ms).base_offset
        if is_awaited and self._flushes is not None:
            self._flushes.register(log)
        return base_offset

    def register_unflushed(self, partition: int) -> None:
        """Register a partition whose records were read but may not be on disk, as after the process was killed."""
        if self._flushes is not None and (log := self.log(partition)).recovery_point < log.log_end_offset:
            self._flushes.register(log)

    async def prune(self, partition: int, offset: int) -> None:
        """Delete the records before `offset`, once the record there is on disk.

        The log start offset may reach the disk before unflushed records do. After a power cut the log would then end
        below it, and neither the deleted records nor those that replace them would be there.
        """
        log = self.log(partition)
        if log.log_start_offset < offset <= log.high_watermark:
            if self._flushes is not None:
                await self._flushes.flush(log, min(offset + 1, log.log_end_offset))
            log.delete_records(offset)

    def leader_epoch(self, partition: int) -> int:
        """Leader epoch of a partition: transaction markers of an older one are refused."""
        return self.log(partition).leader_epoch

    def log(self, partition: int) -> Log:
        try:
            return self._log_of(self.name, partition)
        except BrokerError as error:
            raise BrokerError(ErrorCode.coordinator_not_available, str(error)) from error


_UNIT = struct.Struct(">H")
_LONGEST_REMEMBERED = 128
"""Characters. Names are looked up again and again; long ones would make what is remembered large."""


def partition_for(key: str, partition_count: int) -> int:
    """Utils.abs(key.hashCode()) % partitions."""
    value = _remembered(key) if len(key) <= _LONGEST_REMEMBERED else _java_hash(key)
    return (0 if value == -(2**31) else abs(value)) % partition_count  # Java cannot negate its smallest integer


def _java_hash(text: str) -> int:
    """String.hashCode: over UTF-16 code units, not characters."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for (unit,) in _UNIT.iter_unpack(units):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


_remembered = lru_cache(1 << 12)(_java_hash)  # a MB, however many names come and go
