"""91 AlterShareGroupOffsets, version 0: sets the start offsets of a share group without members (KIP-932)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kafkalog_broker.admin.share_group_state import alter_start_offsets
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.error_response import error_response
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.share.share_state import SharePartitionKey
from kafkalog_broker.share.share_state_shard import UNKNOWN_PARTITION_MESSAGE


@api(91, 0, 0)
async def alter_share_group_offsets(request: Request, broker: Broker) -> Any:
    body = request.entity
    if not body.group_id:
        raise BrokerError(ErrorCode.invalid_group_id, "the group id is empty")
    start_offsets: dict[UUID, dict[int, int]] = {}
    denied: dict[str, BrokerError] = {}
    for topic in body.topics:
        existing_topic = broker.topics.get(topic.topic_name)
        if code := request.authorization_error(topic.topic_name):
            denied[topic.topic_name] = BrokerError(code)
        elif existing_topic is not None:
            start_offsets[existing_topic.id] = {
                partition.partition_index: partition.start_offset
                for partition in topic.partitions
                if 0 <= partition.partition_index < existing_topic.partitions
            }
    try:
        errors = await alter_start_offsets(broker, body.group_id, start_offsets, TimeSlice())
    except BrokerError as error:
        return error_response(request, error.code, error.what)
    unknown_partition = BrokerError(ErrorCode.unknown_topic_or_partition, UNKNOWN_PARTITION_MESSAGE)
    topics = []
    for topic in body.topics:
        existing_topic = broker.topics.get(topic.topic_name)
        topic_id = None if existing_topic is None else existing_topic.id
        partitions = []
        for index in (partition.partition_index for partition in topic.partitions):
            failure = denied.get(topic.topic_name)
            if failure is None and topic_id is not None:
                failure = errors.get(SharePartitionKey(body.group_id, topic_id, index))
            if failure is None and (topic_id is None or index not in start_offsets.get(topic_id, ())):
                failure = unknown_partition
            code, message = (ErrorCode.none, None) if failure is None else (failure.code, failure.message)
            partitions.append({"partition_index": index, "error_code": code, "error_message": message})
        topics.append({"topic_name": topic.topic_name, "topic_id": topic_id, "partitions": partitions})
    return build_response(request, responses=topics)
