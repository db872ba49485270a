"""76 ShareGroupHeartbeat, version 1: a member of a share group joins, stays, subscribes anew or leaves (KIP-932)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kafkalog_broker.admin.share_groups import check_member_id
from kafkalog_broker.broker import Broker
from kafkalog_broker.coordinator.runtime import MOST_NAMES
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_manager import HeartbeatRequest
from kafkalog_broker.protocol.acls import Operation, ResourceType
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import entity, error_response, respond, response_module


@api(76, 1, 1)
async def handle(request: Request, broker: Broker) -> Any:
    asked, module = request.entity, response_module(request)
    try:
        check_member_id(asked.member_id)
        names = asked.subscribed_topic_names
        if names and len(names) > MOST_NAMES:
            raise BrokerError(ErrorCode.invalid_request, f"{len(names)} topics, at most {MOST_NAMES} may be named")
        if names and request.access is not None:
            for name in set(names):
                if not request.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
                    raise BrokerError(ErrorCode.topic_authorization_failed)
        heartbeat = HeartbeatRequest(
            asked.group_id, asked.member_id, asked.member_epoch, rack_id=asked.rack_id, topics=names,
            client_id=request.client_id or "", client_host=f"/{request.connection.host}",
        )  # fmt: skip
        answer = broker.groups.share_heartbeat(heartbeat)
        await broker.flush_offsets(asked.group_id)
    except BrokerError as error:
        message = None if error.what == error.code.name else error.what
        return error_response(request, error.code, message)
    assignment = None
    if answer.assignment is not None:
        topics = tuple(
            entity(module.TopicPartitions, topic_id=topic, partitions=partitions)
            for topic, partitions in answer.assignment.items()
        )
        assignment = entity(module.Assignment, topic_partitions=topics)
    return respond(
        request, member_id=asked.member_id, member_epoch=answer.member_epoch, assignment=assignment,
        heartbeat_interval=timedelta(milliseconds=answer.interval_ms),
    )  # fmt: skip
