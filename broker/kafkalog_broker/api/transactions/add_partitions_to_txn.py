"""24 AddPartitionsToTxn, versions 0 to 5: adds partitions to a transaction, before the producer writes to them.

If a partition does not exist or may not be written to, none is added: that partition gets its error, and the others
OPERATION_NOT_ATTEMPTED.

v2  PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588)
v4  between brokers: several transactions, and partitions that are only verified (KIP-890)
v5  TRANSACTION_ABORTABLE
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from kafkalog_broker.api.error_responses import code_for_version
from kafkalog_broker.api.itemized_responses import respond_by_partition, topic_results
from kafkalog_broker.broker import Broker
from kafkalog_broker.coordinator.coordinator_record import ProducerIdAndEpoch
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response, response_structs
from kafkalog_broker.transactions.transaction_metadata import CLASSIC, EPOCH_BUMP, TopicPartition
from kafkalog_spark.format.names import is_internal

_FIRST_VERSION_BETWEEN_BROKERS = 4

Codes = Mapping[TopicPartition, ErrorCode]
Partitions = frozenset[TopicPartition]
Operation = Callable[[Partitions], Codes]
"""Function that adds partitions to a transaction, or verifies them, and returns their results. Raises BrokerError."""


@api(24, 0, 5)
async def add_partitions_to_txn(request: Request, broker: Broker) -> Any:
    body = request.entity
    if request.version < _FIRST_VERSION_BETWEEN_BROKERS:
        producer = ProducerIdAndEpoch(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
        add = partial(_add, broker, body.v3_and_below_transactional_id, producer, CLASSIC)
        codes = _perform(request, broker, body.v3_and_below_topics, add)
        return await respond_by_partition(request, partial(_result, request, codes))
    topic_struct = response_structs(request).AddPartitionsToTxnTopicResult
    results = []
    for transaction in body.transactions:
        transactional_id = transaction.transactional_id
        producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
        operation: Operation = partial(_add, broker, transactional_id, producer, EPOCH_BUMP)
        if transaction.verify_only:
            operation = partial(broker.transactions.verify_partitions, transactional_id, producer)
        codes = _perform(request, broker, transaction.topics, operation)
        topics = await topic_results(topic_struct, transaction.topics, partial(_result, request, codes))
        results.append({"transactional_id": transactional_id, "topic_results": topics})
    return build_response(request, results_by_transaction=results)


def _perform(request: Request, broker: Broker, topics: Sequence[Any], operation: Operation) -> Codes:
    """Perform `operation` on the partitions of a transaction if all exist and may be written to.

    Clients may not add partitions of internal topics, whatever rights they have.

    Returns:
        The result of each partition.
    """
    from_client = request.version < _FIRST_VERSION_BETWEEN_BROKERS
    codes: dict[TopicPartition, ErrorCode] = {}
    for topic in topics:
        existing_topic = broker.topics.get(topic.name)
        error = ErrorCode.unknown_topic_or_partition
        if from_client and (is_internal(topic.name) or request.authorization_error(topic.name)):
            existing_topic, error = None, ErrorCode.topic_authorization_failed
        for index in topic.partitions:
            exists = existing_topic is not None and 0 <= index < existing_topic.partitions
            codes[TopicPartition(topic.name, index)] = ErrorCode.operation_not_attempted if exists else error
    if set(codes.values()) - {ErrorCode.operation_not_attempted}:
        return codes
    partitions = frozenset(codes)
    try:
        return operation(partitions)
    except BrokerError as failure:
        return dict.fromkeys(partitions, failure.code)


def _add(
    broker: Broker, transactional_id: str, producer: ProducerIdAndEpoch, version: int, partitions: Partitions
) -> Codes:
    broker.transactions.add_partitions(transactional_id, producer, partitions, version)
    return dict.fromkeys(partitions, ErrorCode.none)


def _result(request: Request, codes: Codes, topic: Any, index: int) -> dict[str, ErrorCode]:
    return {"partition_error_code": code_for_version(request, codes[TopicPartition(topic.name, index)])}
