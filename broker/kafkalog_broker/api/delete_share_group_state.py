"""86 DeleteShareGroupState, version 0: the state of share partitions is forgotten (KIP-932). Between brokers."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.admin.responses import StateResponse, answered, refused
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.share.state.state_records import SharePartitionKey

_RESPONSE = StateResponse("DeleteShareGroupStateResponse", "DeleteStateResult")


@api(86, 0, 0)
async def handle(request: Request, broker: Broker) -> Any:
    def delete(key: SharePartitionKey, partition: Any) -> None:
        broker.share_coordinator.delete(key)

    return await answered(request, _RESPONSE, delete)


@on_error(86)
async def failed(request: Request, code: ErrorCode) -> Any:
    return await refused(request, _RESPONSE, code)
