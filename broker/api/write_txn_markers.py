"""27 WriteTxnMarkers, versions 1 and 2: end a transaction in single partitions.

The coordinator of this broker writes its markers itself; who asks here is an administrator who ends a hanging
transaction (kafka-transactions.sh abort), or the coordinator of another broker.

v2  the transaction version (KIP-1228): from 2 on the epoch must be above the transaction's
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.errors import BrokerError, ErrorCode
from broker.protocol.api_registry import Request, api, on_error
from broker.protocol.response_entity import entity, response_module
from broker.transactions.transaction_markers import EndMarker
from broker.transactions.transaction_metadata import TopicPartition

if TYPE_CHECKING:
    from broker.server import Broker

_NOT_READY = frozenset(
    {ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available, ErrorCode.not_coordinator}
)


@api(27, 1, 2)
async def handle(request: Request, broker: Broker) -> Any:
    codes: dict[tuple[int, TopicPartition], ErrorCode] = {}
    for number, marker in enumerate(request.entity.markers):
        for topic in marker.topics:
            for index in topic.partition_indexes:
                partition = TopicPartition(topic.name, index)
                codes[number, partition] = await _write(broker, partition, marker)
    return _answer(request, codes)


async def _write(broker: Broker, partition: TopicPartition, asked: Any) -> ErrorCode:
    if asked.producer_epoch < 0:
        return ErrorCode.unknown_server_error  # Kafka cannot even make such a marker
    marker = EndMarker(
        asked.producer_id, asked.producer_epoch, asked.transaction_result, asked.coordinator_epoch,
        getattr(asked, "transaction_version", 0),
    )  # fmt: skip
    try:
        broker.transaction_ends.write_marker(partition, marker)
        await broker.flush_if_due(broker.log(*partition))
    except BrokerError as error:
        return ErrorCode.not_leader_or_follower if error.code in _NOT_READY else error.code
    return ErrorCode.none


@on_error(27)
def failed(request: Request, code: ErrorCode) -> Any:
    codes = {
        (number, TopicPartition(topic.name, index)): code
        for number, marker in enumerate(request.entity.markers)
        for topic in marker.topics
        for index in topic.partition_indexes
    }
    return _answer(request, codes)


def _answer(request: Request, codes: dict[tuple[int, TopicPartition], ErrorCode]) -> Any:
    module = response_module(request)

    def told(number: int, topic: Any) -> Any:
        return entity(
            module.WritableTxnMarkerTopicResult,
            name=topic.name,
            partitions=tuple(
                entity(
                    module.WritableTxnMarkerPartitionResult,
                    partition_index=index,
                    error_code=codes[number, TopicPartition(topic.name, index)],
                )
                for index in topic.partition_indexes
            ),
        )

    markers = tuple(
        entity(
            module.WritableTxnMarkerResult,
            producer_id=marker.producer_id,
            topics=tuple(told(number, topic) for topic in marker.topics),
        )
        for number, marker in enumerate(request.entity.markers)
    )
    return entity(module.WriteTxnMarkersResponse, markers=markers)
