"""27 WriteTxnMarkers, versions 1 and 2: ends a transaction in single partitions.

The coordinator of this broker writes its markers itself. Requests come from an administrator who ends a hanging
transaction (kafka-transactions.sh abort), or from the coordinator of another broker.

v2  transaction version (KIP-1228): from 2 on, the marker's epoch must be above the transaction's
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from kafkalog_broker.api.transactions.distinct_partitions import distinct_partitions
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import api, on_error
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.transactions.transaction_marker import EndMarker
from kafkalog_broker.transactions.transaction_metadata import TopicPartition
from kafkalog_broker.transactions.transaction_verification import NOT_READY

WritePartition = Callable[[TopicPartition, Any], Awaitable[ErrorCode]]
"""Function from a partition and a marker struct of the request to the partition's result."""


@api(27, 1, 2)
async def write_txn_markers(request: Request, broker: Broker) -> Any:
    return await _response(request, partial(_write, broker))


@on_error(27)
async def write_txn_markers_error(request: Request, code: ErrorCode) -> Any:
    async def same_error(partition: TopicPartition, marker: Any) -> ErrorCode:
        return code

    return await _response(request, same_error)


async def _write(broker: Broker, partition: TopicPartition, marker: Any) -> ErrorCode:
    if marker.producer_epoch < 0:
        return ErrorCode.unknown_server_error  # in Kafka, the constructor of the marker throws
    end_marker = EndMarker(
        marker.producer_id, marker.producer_epoch, marker.transaction_result, marker.coordinator_epoch,
        marker.transaction_version,
    )  # fmt: skip
    try:
        broker.write_marker(partition, end_marker)
        await broker.flush_if_due(broker.log(*partition))
    except BrokerError as error:
        return ErrorCode.not_leader_or_follower if error.code in NOT_READY else error.code
    return ErrorCode.none


async def _response(request: Request, write: WritePartition) -> Any:
    """Return a result for each marker and partition. A partition that a marker names twice has one, as in Kafka."""
    time_slice = TimeSlice()
    markers = []
    for marker in request.entity.markers:
        topics = []
        for name, indexes in distinct_partitions(marker.topics).items():
            partitions = [
                {"partition_index": index, "error_code": await write(TopicPartition(name, index), marker)}
                async for index in time_slice.spread(indexes)
            ]
            topics.append({"name": name, "partitions": partitions})
        markers.append({"producer_id": marker.producer_id, "topics": topics})
    return build_response(request, markers=markers)
