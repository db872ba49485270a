"""An internal topic as its coordinator sees it: append to and read one of its partitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.offset_batches import OffsetsBatch, decode_batches

if TYPE_CHECKING:
    from kafkalog_broker.server import Broker
    from kafkalog_broker.storage.partition.log import Log


class CoordinatorLog:
    """name: of the topic, which FindCoordinator creates. configured_partitions: how many it will have."""

    name: str

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def configured_partitions(self) -> int:
        raise NotImplementedError

    @property
    def partitions(self) -> int:
        topic = self._broker.topics.get(self.name)
        return self.configured_partitions if topic is None else topic.partitions

    def owned(self) -> range:
        """The partitions that are here: all of them, or none before the topic exists."""
        return range(self.partitions if self.name in self._broker.topics else 0)

    def scan(self, partition: int, read_bytes: int = 1 << 20) -> Iterator[OffsetsBatch]:
        """All batches of a partition, in order; `read_bytes` at a time."""
        log = self.log(partition)
        offset, end = log.log_start_offset, log.high_watermark
        while offset < end:
            found = log.reader.read_range(offset, read_bytes, up_to=end, at_least_one=True)
            if not found.chunks:
                return
            yield from decode_batches(found.chunks)
            offset = found.next_offset

    def log(self, partition: int) -> Log:
        """Raises BrokerError coordinator_not_available."""
        try:
            return self._broker.log(self.name, partition)
        except BrokerError as error:
            raise BrokerError(ErrorCode.coordinator_not_available, str(error)) from error
