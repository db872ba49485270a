"""22 InitProducerId, versions 0 to 5: a producer id and epoch for an idempotent or transactional producer.

Without a transactional id every request gets a new id with epoch 0, also one that names the id it had (KIP-360), as
Kafka does. With one, an open transaction of the id is aborted first: CONCURRENT_TRANSACTIONS, and the producer asks
again.

v3  the producer's own id and epoch: it goes on after an error (KIP-360)
v4  PRODUCER_FENCED; before, INVALID_PRODUCER_EPOCH
v5  the second version of transactions (KIP-890): nothing changes here
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.admin.responses import fenced_before
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, response_module
from kafkalog_broker.transactions.transaction_metadata import ProducerIdAndEpoch
from kafkalog_spark.format.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

_NOBODY = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


@api(22, 0, 5)
async def handle(request: Request, broker: Broker) -> Any:
    asked = request.entity
    expected = ProducerIdAndEpoch(
        getattr(asked, "producer_id", NO_PRODUCER_ID), getattr(asked, "producer_epoch", NO_PRODUCER_EPOCH)
    )
    if (expected.producer_id == NO_PRODUCER_ID) != (expected.epoch == NO_PRODUCER_EPOCH):
        raise BrokerError(ErrorCode.invalid_request, f"one of producer id and epoch is missing: {expected}")
    if broker.mirrored is not None:
        # Not POLICY_VIOLATION as for Produce: librdkafka would ask again until its timeout.
        named = asked.transactional_id is not None
        code = ErrorCode.transactional_id_authorization_failed if named else ErrorCode.cluster_authorization_failed
        raise BrokerError(code, f"this broker mirrors {broker.mirrored} and takes no producers")
    await broker.producer_id_is_there()
    if asked.transactional_id is None:
        return _answer(request, ErrorCode.none, ProducerIdAndEpoch(broker.producer_ids.next(), 0))
    timeout_ms = round(asked.transaction_timeout.total_seconds() * 1000)
    try:
        producer = broker.transactions.init_producer_id(
            asked.transactional_id, timeout_ms, None if expected == _NOBODY else expected
        )
    except BrokerError:
        await broker.transaction_ends.complete(asked.transactional_id)  # what this request has ended by fencing
        raise
    return _answer(request, ErrorCode.none, producer)


@on_error(22)
def failed(request: Request, code: ErrorCode) -> Any:
    return _answer(request, fenced_before(4, request.version, code), _NOBODY)


def _answer(request: Request, code: ErrorCode, producer: ProducerIdAndEpoch) -> Any:
    response = response_module(request).InitProducerIdResponse
    return entity(response, error_code=code, producer_id=producer.producer_id, producer_epoch=producer.epoch)
