"""Topics and their partitions as plain tuples, for Metadata and DescribeTopicPartitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from broker.admin.nodes import OPERATIONS_NOT_ASKED_FOR
from broker.errors import BrokerError, ErrorCode
from broker.protocol.metadata_response import PartitionMetadata, TopicMetadata
from broker.storage.topic_registry import Topic
from kafkalog_spark.log.names import is_internal

if TYPE_CHECKING:
    from broker.server import Broker

NO_LEADER = -1
ZERO_ID = UUID(int=0)


def partition_metadata(broker: Broker, topic: Topic, index: int) -> PartitionMetadata:
    """This node leads every partition that it has; one in a failed log directory has no leader."""
    nodes = (broker.node_id,)
    try:
        log = broker.logs.get(topic.name, index) if broker.logs.is_online(topic.name, index) else None
    except BrokerError:  # its directory went offline just now
        log = None
    if log is None:
        return PartitionMetadata(
            index, NO_LEADER, nodes, nodes, 0, nodes, error_code=int(ErrorCode.leader_not_available)
        )
    return PartitionMetadata(index, broker.node_id, nodes, nodes, log.leader_epoch)


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
