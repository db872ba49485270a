"""Topics and their partitions as Metadata and DescribeTopicPartitions report them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from uuid import UUID

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.metadata_messages import (
    AUTHORIZED_OPERATIONS_OMITTED,
    ZERO_ID,
    PartitionMetadata,
    TopicMetadata,
)
from kafkalog_broker.runtime.log_rate import LogRate
from kafkalog_broker.storage.topic import Topic, check_topic_name
from kafkalog_spark.format.names import is_internal

_invalid_name_log = LogRate(logging.getLogger(__name__))
_NO_LEADER = -1


async def load_leader_epochs(broker: Broker, topics: Iterable[Topic]) -> None:
    """Read the leader epochs of logs that are not open yet, in a thread: there may be thousands.

    Call it before `existing_topic`, which would read them one by one in the event loop.
    """
    unknown = broker.logs.unknown_leader_epochs(topics)

    def read() -> None:
        for entry in unknown:
            entry.read_leader_epoch()

    if unknown:
        await broker.run_blocking(read)


def existing_topic(broker: Broker, topic: Topic, operations: int, partitions: Sequence[int]) -> TopicMetadata:
    """Return the metadata of a topic with the given partitions and authorized operations."""
    return TopicMetadata(
        topic.name,
        topic.id,
        [_partition_metadata(broker, topic, index) for index in partitions],
        is_internal=is_internal(topic.name),
        topic_authorized_operations=operations,
    )


def absent_topic(
    code: ErrorCode, name: str | None, topic_id: UUID = ZERO_ID, *, operations: int = AUTHORIZED_OPERATIONS_OMITTED
) -> TopicMetadata:
    """Return the error of a topic that does not exist or that the sender may not describe."""
    return TopicMetadata(name, topic_id, (), int(code), name is not None and is_internal(name), operations)


def missing_topic_error(name: str) -> ErrorCode:
    """Return the error for the name of a missing topic: UNKNOWN_TOPIC_OR_PARTITION if the name is valid."""
    try:
        check_topic_name(name)
    except BrokerError as error:
        _invalid_name_log.log(logging.INFO, "topic %.200r does not exist: %.300s", name, error)
        return error.code
    return ErrorCode.unknown_topic_or_partition


def _partition_metadata(broker: Broker, topic: Topic, index: int) -> PartitionMetadata:
    """Return this node as the leader of a partition, or no leader if its log directory has failed."""
    nodes = (broker.node_id,)
    if broker.logs.is_online(topic.name, index):
        try:
            return PartitionMetadata(index, broker.node_id, nodes, nodes, broker.logs.leader_epoch(topic.name, index))
        except BrokerError:  # the log directory failed after the check
            pass
    return PartitionMetadata(index, _NO_LEADER, nodes, nodes, 0, nodes, error_code=int(ErrorCode.leader_not_available))
