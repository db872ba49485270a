"""83 InitializeShareGroupState, version 0: share partitions get a state (KIP-932). Between brokers."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.admin.responses import StateResponse, answered, refused
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.share.state.state_records import SharePartitionKey

_RESPONSE = StateResponse("InitializeShareGroupStateResponse", "InitializeStateResult")


@api(83, 0, 0)
async def handle(request: Request, broker: Broker) -> Any:
    def initialize(key: SharePartitionKey, partition: Any) -> None:
        broker.share_coordinator.initialize(key, partition.state_epoch, partition.start_offset)

    return await answered(request, _RESPONSE, initialize)


@on_error(83)
async def failed(request: Request, code: ErrorCode) -> Any:
    return await refused(request, _RESPONSE, code)
