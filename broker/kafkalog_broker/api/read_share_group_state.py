"""84 ReadShareGroupState, version 0: what is known of share partitions (KIP-932). Between brokers."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.admin.responses import Fields, StateResponse, answered, refused
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, response_module
from kafkalog_broker.share.state.state_records import SharePartitionKey

_RESPONSE = StateResponse(
    "ReadShareGroupStateResponse", "ReadStateResult", {"state_epoch": 0, "start_offset": 0, "state_batches": ()}
)


@api(84, 0, 0)
async def handle(request: Request, broker: Broker) -> Any:
    kind = response_module(request).StateBatch

    def read(key: SharePartitionKey, partition: Any) -> Fields:
        state = broker.share_coordinator.read(key, partition.leader_epoch)
        batches = tuple(
            entity(kind, first_offset=first, last_offset=last, delivery_state=delivery_state, delivery_count=count)
            for first, last, delivery_state, count in state.batches
        )
        return {"state_epoch": state.state_epoch, "start_offset": state.start_offset, "state_batches": batches}

    return await answered(request, _RESPONSE, read)


@on_error(84)
async def failed(request: Request, code: ErrorCode) -> Any:
    return await refused(request, _RESPONSE, code)
