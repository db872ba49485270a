"""64 UnregisterBroker, version 0: always an error, because the one broker of the cluster is running."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.error_response import error_response
from kafkalog_broker.protocol.request import Request


@api(64, 0, 0)
def unregister_broker(request: Request, broker: Broker) -> Any:
    node_id = request.entity.broker_id
    if node_id == broker.node_id:
        return error_response(
            request, ErrorCode.invalid_request, f"Broker ID {node_id} is this broker, which is running"
        )
    return error_response(
        request, ErrorCode.broker_id_not_registered, f"Broker ID {node_id} is not currently registered"
    )
