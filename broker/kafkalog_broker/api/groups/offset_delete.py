"""47 OffsetDelete, version 0: deletes committed offsets of a group (KIP-496).

Offsets of topics that a member subscribes to are kept: GROUP_SUBSCRIBED_TO_TOPIC. A partition that is named more than
once counts once.
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.api.itemized_responses import respond_by_partition
from kafkalog_broker.broker import Broker
from kafkalog_broker.coordinator.coordinator_errors import coordinator_error_code
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.error_response import error_response
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.runtime.parts import in_parts

PARTITIONS_PER_STEP = 200
"""Partitions whose offsets are deleted, in about 2 ms, before the time slice is checked."""


@api(47, 0, 0)
async def offset_delete(request: Request, broker: Broker) -> Any:
    body = request.entity
    time_slice = TimeSlice()
    codes: dict[tuple[str, int], ErrorCode] = {}  # of existing partitions, each once
    denied: dict[str, ErrorCode] = {}
    for topic in body.topics:
        existing_topic = broker.topics.get(topic.name)
        if code := request.authorization_error(topic.name):
            denied[topic.name] = code
            continue
        for partition in topic.partitions:
            if existing_topic is not None and 0 <= partition.partition_index < existing_topic.partitions:
                codes[topic.name, partition.partition_index] = ErrorCode.none
    try:
        if not codes:  # check the group even if there is nothing to delete
            broker.groups.named_shard(body.group_id).delete_offsets(body.group_id, [])
        async for step in time_slice.spread(in_parts(list(codes), PARTITIONS_PER_STEP)):
            step_codes = broker.groups.named_shard(body.group_id).delete_offsets(body.group_id, step)
            codes.update(zip(step, step_codes, strict=True))
    except BrokerError as error:
        return error_response(request, coordinator_error_code(error.code))

    def result(topic: Any, partition: Any) -> dict[str, Any]:
        code = denied.get(topic.name) or codes.get((topic.name, partition.partition_index))
        return {"error_code": ErrorCode.unknown_topic_or_partition if code is None else code}

    return await respond_by_partition(request, result)
