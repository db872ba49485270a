"""Transactions of producers.

22 InitProducerId, versions 0 to 5: a producer id and epoch for an idempotent or transactional producer. Without a
transactional id every request gets a new id with epoch 0, also one that names the id it had (KIP-360), as Kafka does.
With one, an open transaction of the id is aborted first: CONCURRENT_TRANSACTIONS, and the producer asks again.
v3  the producer's own id and epoch: it goes on after an error (KIP-360)
v4  PRODUCER_FENCED; before, INVALID_PRODUCER_EPOCH
v5  the second version of transactions (KIP-890): nothing changes here

25 AddOffsetsToTxn, versions 0 to 4: adds the group's partition of __consumer_offsets to a transaction.
v2  PRODUCER_FENCED; before, INVALID_PRODUCER_EPOCH
v4  TRANSACTION_ABORTABLE (KIP-890)

26 EndTxn, versions 0 to 5: commit or abort. The markers are written when the answer leaves.
v2, v4  as of AddOffsetsToTxn
v5  the epoch is raised, and the answer holds the producer id and epoch to go on with"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.admin.responses import known_code
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import respond
from kafkalog_broker.transactions.transaction_metadata import CLASSIC, EPOCH_BUMP, ProducerIdAndEpoch, TopicPartition
from kafkalog_spark.format.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from kafkalog_spark.format.names import OFFSETS_TOPIC

_EPOCH_BUMP_FROM = 5
_NO_PRODUCER = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


@api(25, 0, 4)
async def add_offsets_to_txn(request: Request, broker: Broker) -> Any:
    asked = request.entity
    partition = TopicPartition(OFFSETS_TOPIC, broker.groups.partition_for(asked.group_id))
    broker.transactions.add_partitions(
        asked.transactional_id,
        ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch),
        frozenset({partition}),
        CLASSIC,
    )
    return respond(request)


@api(26, 0, 5)
async def end_txn(request: Request, broker: Broker) -> Any:
    asked = request.entity
    producer = broker.transactions.end(
        asked.transactional_id,
        ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch),
        commit=asked.committed,
        client_version=EPOCH_BUMP if request.version >= _EPOCH_BUMP_FROM else CLASSIC,
    )
    await broker.transaction_ends.complete(asked.transactional_id)
    return _producer(request, ErrorCode.none, producer)


@api(22, 0, 5)
async def init_producer_id(request: Request, broker: Broker) -> Any:
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
        return _producer(request, ErrorCode.none, ProducerIdAndEpoch(broker.producer_ids.next(), 0))
    timeout_ms = round(asked.transaction_timeout.total_seconds() * 1000)
    try:
        producer = broker.transactions.init_producer_id(
            asked.transactional_id, timeout_ms, None if expected == _NO_PRODUCER else expected
        )
    except BrokerError:
        await broker.transaction_ends.complete(asked.transactional_id)  # what this request has ended by fencing
        raise
    return _producer(request, ErrorCode.none, producer)


@on_error(22)
@on_error(26)
def producer_failed(request: Request, code: ErrorCode) -> Any:
    return _producer(request, known_code(request, code), _NO_PRODUCER)


def _producer(request: Request, code: ErrorCode, producer: ProducerIdAndEpoch) -> Any:
    return respond(request, error_code=code, producer_id=producer.producer_id, producer_epoch=producer.epoch)
