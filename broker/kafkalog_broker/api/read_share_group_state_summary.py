"""87 ReadShareGroupStateSummary, versions 0 and 1: where the delivery of share partitions begins (KIP-932). Between
brokers.

v1  delivery complete count (KIP-1226)
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.admin.responses import Fields, StateResponse, answered, refused
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.share.state.state_records import SharePartitionKey
from kafkalog_broker.share.state.state_shard import Summary

_RESPONSE = StateResponse("ReadShareGroupStateSummaryResponse", "ReadStateSummaryResult", Summary(0, 0, 0, 0)._asdict())


@api(87, 0, 1)
async def handle(request: Request, broker: Broker) -> Any:
    def summary(key: SharePartitionKey, partition: Any) -> Fields:
        return broker.share_coordinator.summary(key)._asdict()

    return await answered(request, _RESPONSE, summary)


@on_error(87)
async def failed(request: Request, code: ErrorCode) -> Any:
    return await refused(request, _RESPONSE, code)
