"""An internal topic as its coordinator sees it: append to and read one of its partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kafkalog_broker.clock import Clock
from kafkalog_broker.coordinators.record_batches import OffsetsBatch, decode_batches
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.topic_registry import TopicRegistry

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
