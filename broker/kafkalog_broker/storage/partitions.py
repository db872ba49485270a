"""Look-up of partitions for requests, with the errors that clients get for unknown topics and partitions."""

from __future__ import annotations

from uuid import UUID

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.topic_registry import TopicRegistry


class Partitions:
    """Partitions of this broker, by topic name or topic ID."""

    def __init__(self, topics: TopicRegistry, logs: LogManager) -> None:
        self._topics = topics
        self._logs = logs

    def log(self, topic: str, partition: int) -> Log:
        """Return the log of a partition.

        Raises:
            BrokerError: unknown_topic_or_partition, or kafka_storage_error if its log directory is offline.
        """
        log = self._logs.get(topic, partition)
        if log is None:
            raise BrokerError(ErrorCode.unknown_topic_or_partition, f"there is no partition {topic}-{partition}")
        return log

    def topic_name(self, topic_id: UUID) -> str:
        """Return the name of a topic.

        Raises:
            BrokerError: unknown_topic_id.
        """
        topic = self._topics.by_id(topic_id)
        if topic is None:
            raise BrokerError(ErrorCode.unknown_topic_id, f"there is no topic with id {topic_id}")
        return topic.name

    def log_by_id(self, topic_id: UUID, partition: int) -> Log:
        """Return the log of a partition by its topic ID. Raises BrokerError as `log` and `topic_name`."""
        return self.log(self.topic_name(topic_id), partition)
