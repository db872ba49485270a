"""26 EndTxn, versions 0 to 5: commit or abort a transaction. Its markers are written when the answer leaves.

v2  PRODUCER_FENCED; before, INVALID_PRODUCER_EPOCH
v4  TRANSACTION_ABORTABLE (KIP-890)
v5  the epoch is raised, and the answer holds the producer id and epoch to go on with
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.admin.responses import fenced_before
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, response_module
from kafkalog_broker.transactions.transaction_metadata import CLASSIC, EPOCH_BUMP, ProducerIdAndEpoch
from kafkalog_spark.format.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

_EPOCH_BUMP_FROM = 5


@api(26, 0, 5)
async def handle(request: Request, broker: Broker) -> Any:
    asked = request.entity
    producer = broker.transactions.end(
        asked.transactional_id,
        ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch),
        commit=asked.committed,
        client_version=EPOCH_BUMP if request.version >= _EPOCH_BUMP_FROM else CLASSIC,
    )
    await broker.transaction_ends.complete(asked.transactional_id)
    return _answer(request, ErrorCode.none, producer)


@on_error(26)
def failed(request: Request, code: ErrorCode) -> Any:
    return _answer(
        request, fenced_before(2, request.version, code), ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    )


def _answer(request: Request, code: ErrorCode, producer: ProducerIdAndEpoch) -> Any:
    response = response_module(request).EndTxnResponse
    return entity(response, error_code=code, producer_id=producer.producer_id, producer_epoch=producer.epoch)
