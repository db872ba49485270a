"""75 DescribeTopicPartitions, version 0: partitions of topics, page by page (KIP-966).

Topics are sorted by name. A page holds at most `response_partition_limit` partitions, and the answer's cursor says
where the next one begins.
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.admin.topic_checks import learn_leader_epochs, missing_topic, topic_metadata
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import ResourceType
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.metadata_response import PartitionMetadata, TopicMetadata
from kafkalog_broker.protocol.response_entity import entity, respond, response_module
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.storage.topic_registry import check_topic_name


@api(75, 0, 0)
async def handle(request: Request, broker: Broker) -> Any:
    asked = request.entity
    module = response_module(request)
    names = _names(asked, broker)
    refused: list[TopicMetadata] = []
    if request.access is not None:
        shown = []
        async for name in TimeSlice().spread(names):
            code = request.refused(name, quiet=not asked.topics)
            if code is ErrorCode.none:
                shown.append(name)
            elif asked.topics:
                refused.append(missing_topic(code, name))
        names = shown
    await learn_leader_epochs(broker, [topic for name in names if (topic := broker.topics.get(name)) is not None])
    limit = max(1, min(asked.response_partition_limit, broker.config.max_request_partition_size_limit))
    cursor = asked.cursor
    found: list[TopicMetadata] = []
    following: tuple[str, int] | None = None
    for name in names:
        if limit <= 0:
            following = (name, 0)
            break
        start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        described = _describe(request, broker, name, range(start, start + limit))
        if described is None:
            continue
        found.append(described)
        limit -= len(described.partitions)
        topic = broker.topics.get(name)
        end = start + len(described.partitions)
        if topic is not None and described.partitions and end < topic.partitions:
            following = (name, end)
            break
    return respond(
        request,
        topics=tuple(_topic(module, topic) for topic in [*found, *refused]),
        next_cursor=following and entity(module.Cursor, topic_name=following[0], partition_index=following[1]),
    )


def _names(asked: Any, broker: Broker) -> list[str]:
    """Sorted, from the cursor's topic on; without names in the request all topics. Raises BrokerError."""
    cursor = asked.cursor
    names = {topic.name for topic in asked.topics} or set(broker.topics.topics)
    if cursor is not None:
        if asked.topics and cursor.topic_name not in names:
            raise BrokerError(
                ErrorCode.invalid_request,
                f"DescribeTopicPartitionsRequest topic list should contain the cursor topic: {cursor.topic_name}",
            )
        if cursor.partition_index < 0:
            raise BrokerError(ErrorCode.invalid_request, "the cursor's partition must not be negative")
    return sorted(name for name in names if cursor is None or name >= cursor.topic_name)


def _describe(request: Request, broker: Broker, name: str, window: range) -> TopicMetadata | None:
    topic, operations = broker.topics.get(name), request.operations(ResourceType.TOPIC, name)
    if topic is not None:
        last = min(window.stop, topic.partitions)
        return topic_metadata(broker, topic, operations=operations, partitions=range(window.start, last))
    try:
        check_topic_name(name)
    except BrokerError as error:
        return missing_topic(error.code, name, operations=operations)
    return missing_topic(ErrorCode.unknown_topic_or_partition, name, operations=operations)


def _topic(module: Any, topic: TopicMetadata) -> Any:
    return entity(
        module.DescribeTopicPartitionsResponseTopic,
        error_code=ErrorCode(topic.error_code),
        name=topic.name,
        topic_id=topic.topic_id if topic.topic_id.int else None,
        is_internal=topic.is_internal,
        partitions=tuple(_partition(module, partition) for partition in topic.partitions),
        topic_authorized_operations=topic.authorized_operations,
    )


def _partition(module: Any, partition: PartitionMetadata) -> Any:
    return entity(
        module.DescribeTopicPartitionsResponsePartition,
        error_code=ErrorCode(partition.error_code),
        partition_index=partition.partition,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=tuple(partition.replicas),
        isr_nodes=tuple(partition.isr),
        eligible_leader_replicas=(),
        last_known_elr=(),
        offline_replicas=tuple(partition.offline_replicas),
    )
