"""68 ConsumerGroupHeartbeat, versions 0 and 1: a member of a consumer group joins, stays or leaves (KIP-848).

The response has the member's epoch and its assignment.

v1  the client chooses the member ID (KIP-1082); subscription by regular expression
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kafkalog_broker.api.groups.modern_heartbeat_request import changed_timeout_ms, check_subscribed_topics
from kafkalog_broker.api.groups.modern_heartbeat_response import heartbeat_response
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.groups.consumer.consumer_group_heartbeat import ConsumerHeartbeatRequest
from kafkalog_broker.protocol.acls import Operation, ResourceType
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.error_response import error_response
from kafkalog_broker.protocol.request import Request

_FIRST_VERSION_WITH_CLIENT_MADE_IDS = 1
_ZERO_ID = UUID(int=0)


@api(68, 0, 1)
def consumer_group_heartbeat(request: Request, broker: Broker) -> Any:
    body = request.entity
    try:
        check_subscribed_topics(request, body.subscribed_topic_names or ())
        result = broker.groups.consumer_group_heartbeat(_heartbeat(request))
    except BrokerError as error:
        return error_response(request, error.code, error.message)
    return heartbeat_response(request, result)


def _heartbeat(request: Request) -> ConsumerHeartbeatRequest:
    body, access = request.entity, request.access
    owned: dict[UUID, set[int]] | None = None if body.topic_partitions is None else {}
    if owned is not None:
        for topic in body.topic_partitions:
            owned.setdefault(topic.topic_id or _ZERO_ID, set()).update(topic.partitions)
    return ConsumerHeartbeatRequest(
        group_id=body.group_id,
        member_id=body.member_id,
        member_epoch=body.member_epoch,
        instance_id=body.instance_id,
        rack_id=body.rack_id,
        rebalance_timeout_ms=changed_timeout_ms(body.rebalance_timeout),
        topics=body.subscribed_topic_names,
        regex=body.subscribed_topic_regex,
        assignor=body.server_assignor,
        owned=owned,
        client_id=request.client_id or "",
        client_host=f"/{request.connection.host}",
        needs_member_id=request.version >= _FIRST_VERSION_WITH_CLIENT_MADE_IDS,
        may_describe=None
        if access is None
        else lambda name: access.may(Operation.DESCRIBE, ResourceType.TOPIC, name, quiet=True),
    )
