"""75 DescribeTopicPartitions, version 0: partitions of topics, page by page (KIP-966).

Topics are sorted by name. A page has at most `response_partition_limit` partitions, and the response's cursor says
where the next page begins.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kafkalog_broker.api.topics.topic_metadata import (
    absent_topic,
    existing_topic,
    load_leader_epochs,
    missing_topic_error,
)
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import ResourceType
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.metadata_messages import TopicMetadata
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response
from kafkalog_broker.runtime.fair_scheduling import TimeSlice


class _Cursor(NamedTuple):
    """The first partition of the next page."""

    topic: str
    partition: int


@api(75, 0, 0)
async def describe_topic_partitions(request: Request, broker: Broker) -> Any:
    body = request.entity
    time_slice = TimeSlice()
    names = _remaining_names(request, broker)
    denied: list[TopicMetadata] = []
    if request.access is not None:
        permitted = []
        async for name in time_slice.spread(names):
            code = request.authorization_error(name, quiet=not body.topics)
            if code is ErrorCode.none:
                permitted.append(name)
            elif body.topics:
                denied.append(absent_topic(code, name))
        names = permitted
    await load_leader_epochs(broker, [topic for name in names if (topic := broker.topics.get(name)) is not None])
    limit = max(1, min(body.response_partition_limit, broker.config.max_request_partition_size_limit))
    cursor = body.cursor
    page: list[TopicMetadata] = []
    next_cursor: _Cursor | None = None
    async for name in time_slice.spread(names):
        if limit <= 0:
            next_cursor = _Cursor(name, 0)
            break
        start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        topic = broker.topics.get(name)
        operations = request.operations(ResourceType.TOPIC, name)
        if topic is None:
            page.append(absent_topic(missing_topic_error(name), name, operations=operations))
            continue
        partitions = range(start, min(start + limit, topic.partitions))
        page.append(existing_topic(broker, topic, operations, partitions))
        limit -= len(partitions)
        if partitions and partitions.stop < topic.partitions:
            next_cursor = _Cursor(name, partitions.stop)
            break
    return build_response(
        request,
        topics=[*page, *denied],
        next_cursor=next_cursor and {"topic_name": next_cursor.topic, "partition_index": next_cursor.partition},
    )


def _remaining_names(request: Request, broker: Broker) -> list[str]:
    """Return the sorted names of the requested topics, or of all topics, from the cursor's topic on.

    Raises:
        BrokerError: INVALID_REQUEST for a cursor that does not belong to the request.
    """
    topics, cursor = request.entity.topics, request.entity.cursor
    names = {topic.name for topic in topics} or set(broker.topics.topics)
    if cursor is not None:
        if topics and cursor.topic_name not in names:
            raise BrokerError(
                ErrorCode.invalid_request,
                f"DescribeTopicPartitionsRequest topic list should contain the cursor topic: {cursor.topic_name}",
            )
        if cursor.partition_index < 0:
            raise BrokerError(ErrorCode.invalid_request, "the cursor's partition must not be negative")
    return sorted(name for name in names if cursor is None or name >= cursor.topic_name)
