"""Topics and their partitions as plain tuples, for Metadata and DescribeTopicPartitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.metadata_response import (
    OPERATIONS_NOT_ASKED_FOR,
    ZERO_ID,
    PartitionMetadata,
    TopicMetadata,
)
from kafkalog_broker.storage.log_table import LogEntry
from kafkalog_broker.storage.topics_file import Topic
from kafkalog_spark.log.format.names import is_internal

NO_LEADER = -1


def partition_metadata(broker: Broker, topic: Topic, index: int) -> PartitionMetadata:
    """This node leads every partition that it has; one in a failed log directory has no leader."""
    nodes = (broker.node_id,)
    if broker.logs.is_online(topic.name, index):
        try:
            return PartitionMetadata(index, broker.node_id, nodes, nodes, broker.logs.leader_epoch(topic.name, index))
        except BrokerError:  # its directory went offline just now
            pass
    return PartitionMetadata(index, NO_LEADER, nodes, nodes, 0, nodes, error_code=int(ErrorCode.leader_not_available))


async def learn_leader_epochs(broker: Broker, topics: Iterable[Topic]) -> None:
    """Before topics are described: logs that were not opened yet, maybe thousands, are looked at in a thread, so that
    others are served meanwhile."""
    unknown = broker.logs.unknown_leader_epochs(topics)
    if unknown:
        await broker.run_blocking(_read_leader_epochs, unknown)


def _read_leader_epochs(entries: Sequence[LogEntry]) -> None:
    for entry in entries:
        entry.read_leader_epoch()


def topic_metadata(
    broker: Broker,
    topic: Topic,
    *,
    operations: int = OPERATIONS_NOT_ASKED_FOR,
    partitions: Sequence[int] | None = None,
) -> TopicMetadata:
    """All partitions of a topic, or those given."""
    indexes = range(topic.partitions) if partitions is None else partitions
    return TopicMetadata(
        topic.name,
        topic.id,
        [partition_metadata(broker, topic, index) for index in indexes],
        is_internal=is_internal(topic.name),
        authorized_operations=operations,
    )


def missing_topic(
    code: ErrorCode, name: str | None, topic_id: UUID = ZERO_ID, *, operations: int = OPERATIONS_NOT_ASKED_FOR
) -> TopicMetadata:
    return TopicMetadata(
        name, topic_id, (), int(code), name is not None and is_internal(name), authorized_operations=operations
    )
