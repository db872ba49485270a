"""25 AddOffsetsToTxn, versions 0 to 4: a transaction is going to commit offsets of a group.

What is added is the group's partition of __consumer_offsets.

v2  PRODUCER_FENCED; before, INVALID_PRODUCER_EPOCH
v4  TRANSACTION_ABORTABLE (KIP-890)
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.admin.responses import fenced_before
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, response_module
from kafkalog_broker.transactions.transaction_metadata import CLASSIC, ProducerIdAndEpoch, TopicPartition
from kafkalog_spark.format.names import OFFSETS_TOPIC


@api(25, 0, 4)
async def handle(request: Request, broker: Broker) -> Any:
    asked = request.entity
    partition = TopicPartition(OFFSETS_TOPIC, broker.groups.partition_for(asked.group_id))
    broker.transactions.add_partitions(
        asked.transactional_id,
        ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch),
        frozenset({partition}),
        CLASSIC,
    )
    return _answer(request, ErrorCode.none)


@on_error(25)
def failed(request: Request, code: ErrorCode) -> Any:
    return _answer(request, fenced_before(2, request.version, code))


def _answer(request: Request, code: ErrorCode) -> Any:
    return entity(response_module(request).AddOffsetsToTxnResponse, error_code=code)
