"""27 WriteTxnMarkers, versions 1 and 2: end a transaction in single partitions.

The coordinator of this broker writes its markers itself; who asks here is an administrator who ends a hanging
transaction (kafka-transactions.sh abort), or the coordinator of another broker.

v2  the transaction version (KIP-1228): from 2 on the epoch must be above the transaction's
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, respond, response_module
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.transactions.transaction_metadata import EndMarker, TopicPartition

_NOT_READY = frozenset(
    {ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available, ErrorCode.not_coordinator}
)


Codes = list[tuple[Any, dict[str, dict[int, ErrorCode]]]]
"""By marker; topic and partition, each once."""


@api(27, 1, 2)
async def handle(request: Request, broker: Broker) -> Any:
    turn = TimeSlice()
    codes = _asked(request, ErrorCode.none)
    for marker, topics in codes:
        for name, partitions in topics.items():
            async for index in turn.spread(partitions):
                partitions[index] = await _write(broker, TopicPartition(name, index), marker)
    return _answer(request, codes)


def _asked(request: Request, code: ErrorCode) -> Codes:
    """Each marker with its partitions, of which one that is named twice comes once, as in Kafka."""
    codes: Codes = []
    for marker in request.entity.markers:
        topics: dict[str, dict[int, ErrorCode]] = {}
        for topic in marker.topics:
            topics.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes, code))
        codes.append((marker, topics))
    return codes


async def _write(broker: Broker, partition: TopicPartition, asked: Any) -> ErrorCode:
    if asked.producer_epoch < 0:
        return ErrorCode.unknown_server_error  # Kafka cannot even make such a marker
    marker = EndMarker(
        asked.producer_id, asked.producer_epoch, asked.transaction_result, asked.coordinator_epoch,
        getattr(asked, "transaction_version", 0),
    )  # fmt: skip
    try:
        broker.markers.write(partition, marker)
        await broker.flush_if_due(broker.log(*partition))
    except BrokerError as error:
        return ErrorCode.not_leader_or_follower if error.code in _NOT_READY else error.code
    return ErrorCode.none


@on_error(27)
def failed(request: Request, code: ErrorCode) -> Any:
    return _answer(request, _asked(request, code))


def _answer(request: Request, codes: Codes) -> Any:
    module = response_module(request)
    markers = []
    for marker, named in codes:
        topics = []
        for name, partitions in named.items():
            results = [
                entity(module.WritableTxnMarkerPartitionResult, partition_index=index, error_code=code)
                for index, code in partitions.items()
            ]
            topics.append(entity(module.WritableTxnMarkerTopicResult, name=name, partitions=tuple(results)))
        markers.append(entity(module.WritableTxnMarkerResult, producer_id=marker.producer_id, topics=tuple(topics)))
    return respond(request, markers=tuple(markers))
