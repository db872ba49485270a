"""85 WriteShareGroupState, versions 0 and 1: what has become of records of share partitions (KIP-932). Between brokers.

v1  delivery complete count (KIP-1226)
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.admin.responses import StateResponse, answered, refused
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.share.state.state_records import NOT_COUNTED, SharePartitionKey, StateBatch
from kafkalog_broker.share.state.state_shard import WriteState

_RESPONSE = StateResponse("WriteShareGroupStateResponse", "WriteStateResult")


@api(85, 0, 1)
async def handle(request: Request, broker: Broker) -> Any:
    def write(key: SharePartitionKey, partition: Any) -> None:
        batches = [
            StateBatch(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
            for one in partition.state_batches
        ]
        complete = getattr(partition, "delivery_complete_count", NOT_COUNTED)
        broker.share_coordinator.write(
            key, WriteState(partition.state_epoch, partition.leader_epoch, partition.start_offset, complete, batches)
        )

    return await answered(request, _RESPONSE, write)


@on_error(85)
async def failed(request: Request, code: ErrorCode) -> Any:
    return await refused(request, _RESPONSE, code)
