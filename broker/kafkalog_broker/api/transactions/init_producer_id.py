"""22 InitProducerId, versions 0 to 5: a producer ID and epoch for an idempotent or transactional producer.

Without a transactional ID, each request gets a new producer ID with epoch 0, as in Kafka, even if the request names the
producer's present ID (KIP-360). With one, an open transaction of that ID is aborted first: the response is
CONCURRENT_TRANSACTIONS, and the producer retries.

v3  the producer's own ID and epoch, with which it recovers from an error (KIP-360)
v4  PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588)
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.api.transactions.producer_response import INIT_PRODUCER_ID, NO_PRODUCER, producer_response
from kafkalog_broker.broker import Broker
from kafkalog_broker.coordinator.coordinator_record import ProducerIdAndEpoch
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request
from kafkalog_spark.format.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID


@api(INIT_PRODUCER_ID, 0, 5)
async def init_producer_id(request: Request, broker: Broker) -> Any:
    body = request.entity
    current = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
    if (current.producer_id == NO_PRODUCER_ID) != (current.epoch == NO_PRODUCER_EPOCH):
        raise BrokerError(ErrorCode.invalid_request, f"one of producer id and epoch is missing: {current}")
    if broker.mirror_source is not None:
        # Unlike Produce, not POLICY_VIOLATION: librdkafka would retry it until its timeout.
        is_transactional = body.transactional_id is not None
        raise BrokerError(
            ErrorCode.transactional_id_authorization_failed
            if is_transactional
            else ErrorCode.cluster_authorization_failed,
            f"this broker mirrors {broker.mirror_source} and is read-only: it does not accept producers",
        )
    await broker.wait_for_producer_id()
    if body.transactional_id is None:
        return producer_response(request, ProducerIdAndEpoch(broker.producer_ids.next(), 0))
    timeout_ms = round(body.transaction_timeout.total_seconds() * 1000)
    try:
        producer = broker.transactions.init_producer_id(
            body.transactional_id, timeout_ms, None if current == NO_PRODUCER else current
        )
    except BrokerError:
        # Fencing the previous producer may have aborted its transaction, whose markers must be written.
        await broker.transaction_ends.complete(body.transactional_id)
        raise
    return producer_response(request, producer)
