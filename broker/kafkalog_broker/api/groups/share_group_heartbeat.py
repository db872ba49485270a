"""76 ShareGroupHeartbeat, version 1: a member of a share group joins, stays or leaves (KIP-932).

The response has the member's epoch and its assignment.
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.api.groups.modern_heartbeat_request import check_subscribed_topics
from kafkalog_broker.api.groups.modern_heartbeat_response import heartbeat_response
from kafkalog_broker.api.records.share_acknowledge import check_member_id
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.groups.share.share_group_heartbeat import ShareHeartbeatRequest
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.error_response import error_response
from kafkalog_broker.protocol.request import Request


@api(76, 1, 1)
def share_group_heartbeat(request: Request, broker: Broker) -> Any:
    body = request.entity
    try:
        check_member_id(body.member_id)
        check_subscribed_topics(request, body.subscribed_topic_names or ())
        heartbeat = ShareHeartbeatRequest(
            group_id=body.group_id,
            member_id=body.member_id,
            member_epoch=body.member_epoch,
            rack_id=body.rack_id,
            topics=body.subscribed_topic_names,
            client_id=request.client_id or "",
            client_host=f"/{request.connection.host}",
        )
        result = broker.groups.share_group_heartbeat(heartbeat)
    except BrokerError as error:
        return error_response(request, error.code, error.message)
    return heartbeat_response(request, result)
