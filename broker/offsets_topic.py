"""__consumer_offsets as the group coordinator sees it: append to and read one of its partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from broker.config.internal_topics import OFFSETS_TOPIC
from broker.errors import BrokerError, ErrorCode
from broker.groups.offset_batches import OffsetsBatch, Record, decode_batches, encode_batch

if TYPE_CHECKING:
    from broker.server import Broker
    from broker.storage.log import Log

_READ_BYTES = 1 << 20


class OffsetsTopic:
    """FindCoordinator creates it, with offsets.topic.num.partitions partitions."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def partitions(self) -> int:
        topic = self._broker.topics.get(OFFSETS_TOPIC)
        return self._broker.config.offsets_topic_num_partitions if topic is None else topic.partitions

    def owned(self) -> range:
        """The partitions that are here: all of them, or none before the topic exists."""
        return range(self.partitions if OFFSETS_TOPIC in self._broker.topics else 0)

    def append(self, partition: int, records: Sequence[Record]) -> None:
        """One batch. In the page cache on return: as safe as a record acknowledged with the default flush policy."""
        now_ms = self._broker.clock.now_ms()
        self.log(partition).append_records(encode_batch(records, now_ms), now_ms)

    def scan(self, partition: int) -> Iterator[OffsetsBatch]:
        """All batches of a partition, in order."""
        log = self.log(partition)
        offset, end = log.log_start_offset, log.high_watermark
        while offset < end:
            found = log.read_range(offset, _READ_BYTES, up_to=end, at_least_one=True)
            if not found.chunks:
                return
            yield from decode_batches(found.chunks)
            offset = found.next_offset

    def log(self, partition: int) -> Log:
        """Raises BrokerError coordinator_not_available when it cannot be had."""
        try:
            return self._broker.log(OFFSETS_TOPIC, partition)
        except BrokerError as error:
            raise BrokerError(ErrorCode.coordinator_not_available, str(error)) from error
