"""The internal topic of a coordinator, which the coordinator appends to, scans and prunes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kafkalog_broker.coordinator.coordinator_record import ProducerIdAndEpoch, Record
from kafkalog_broker.coordinator.log_flushes import LogFlushes
from kafkalog_broker.coordinator.record_batch import CoordinatorBatch, decode_batches, encode_batch
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_spark.log.write.encoded_batch import EncodedRecords

LogOf = Callable[[str, int], Log]
"""Returns the log of a partition, by topic and index. Raises BrokerError if the partition is not on this broker."""


class CoordinatorLog:
    """Partitions of one internal topic. The topic may not exist yet: FindCoordinator creates it.

    All methods raise BrokerError: coordinator_not_available if this broker does not host a partition, and the errors of
    its log.
    """

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
        """Create the log of a coordinator. Nothing is read yet.

        Args:
            configured_partitions: Number of partitions that the topic will get when it is created.
            read_bytes: Size of the chunks in which `scan` reads a partition.
            flushes: Where logs with flush.messages=1 are registered. None if the caller flushes itself.
        """
        self.name = name
        self._topics = topics
        self._log_of = log_of
        self._clock = clock
        self._configured_partitions = configured_partitions
        self._read_bytes = read_bytes
        self._flushes = flushes

    @property
    def partitions(self) -> int:
        """Number of partitions that the topic has, or will have when it is created."""
        topic = self._topics.get(self.name)
        return self._configured_partitions if topic is None else topic.partitions

    def owned(self) -> range:
        """Return the partitions that this broker hosts: all of them, or none before the topic exists."""
        return range(self.partitions if self.name in self._topics else 0)

    def scan(self, partition: int) -> Iterator[CoordinatorBatch]:
        """Decode a partition from the log start offset to the log end offset."""
        return decode_batches(self.log(partition).chunks(self._read_bytes))

    def append(
        self, partition: int, records: Sequence[Record] | EncodedRecords,
        transaction: ProducerIdAndEpoch | None = None, *, is_awaited: bool = True,
    ) -> int:  # fmt: skip
        """Append one batch to the page cache and return its base offset.

        With flush.messages=1 the log is registered, so that no response is sent before the batch is on disk. A caller
        that must not append to another log before that, for example a transaction marker, waits for the flush itself.

        Args:
            is_awaited: False if no response depends on the records. They are then flushed with later records or by the
                periodic housekeeping.
        """
        now_ms = self._clock.now_ms()
        batch = encode_batch(records, now_ms, transaction=transaction)
        log = self.log(partition)
        base_offset = log.append_batch(batch, now_ms).base_offset
        if is_awaited and self._flushes is not None:
            self._flushes.register(log)
        return base_offset

    def register_unflushed(self, partition: int) -> None:
        """Register the log of a partition if some of its records may not be on disk, as after `kill -9`."""
        if self._flushes is not None and (log := self.log(partition)).recovery_point < log.log_end_offset:
            self._flushes.register(log)

    async def prune(self, partition: int, offset: int) -> None:
        """Delete the records before `offset`, after the record at `offset` has been flushed.

        Without the flush, the log start offset could reach the disk before unflushed records. After a power cut the log
        would end below its start, without the deleted records and without the records that supersede them.
        """
        log = self.log(partition)
        if log.log_start_offset < offset <= log.high_watermark:
            if self._flushes is not None:
                await self._flushes.flush(log, min(offset + 1, log.log_end_offset))
            log.delete_records(offset)

    def leader_epoch(self, partition: int) -> int:
        """Return the leader epoch of a partition. Logs refuse transaction markers of an older coordinator epoch."""
        return self.log(partition).leader_epoch

    def log(self, partition: int) -> Log:
        """Return the log of a partition. Raises BrokerError coordinator_not_available if it cannot be opened."""
        try:
            return self._log_of(self.name, partition)
        except BrokerError as error:
            raise BrokerError(ErrorCode.coordinator_not_available, str(error)) from error
