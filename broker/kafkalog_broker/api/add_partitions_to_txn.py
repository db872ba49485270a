"""24 AddPartitionsToTxn, versions 0 to 5: partitions that a transaction is going to write to.

One that does not exist refuses all: it gets its code, the others OPERATION_NOT_ATTEMPTED.

v2  PRODUCER_FENCED; before, INVALID_PRODUCER_EPOCH
v4  between brokers: several transactions, and those that are only verified (KIP-890)
v5  TRANSACTION_ABORTABLE
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kafkalog_broker.admin.responses import known_code, per_partition
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import entity, respond, response_module
from kafkalog_broker.transactions.transaction_metadata import CLASSIC, EPOCH_BUMP, ProducerIdAndEpoch, TopicPartition
from kafkalog_spark.format.names import is_internal

_SEVERAL_FROM = 4

Codes = Mapping[TopicPartition, ErrorCode]


@api(24, 0, 5)
async def handle(request: Request, broker: Broker) -> Any:
    asked = request.entity
    if request.version < _SEVERAL_FROM:
        producer = ProducerIdAndEpoch(asked.v3_and_below_producer_id, asked.v3_and_below_producer_epoch)
        topics = asked.v3_and_below_topics
        codes = _add(
            broker, asked.v3_and_below_transactional_id, producer, topics, CLASSIC, verify_only=False,
            refused=partial(_refused, request),
        )  # fmt: skip
        return respond(request, results_by_topic_v3_and_below=await _topics(request, topics, codes.__getitem__))
    result, results = response_module(request).AddPartitionsToTxnResult, []
    for transaction in asked.transactions:
        producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
        codes = _add(
            broker, transaction.transactional_id, producer, transaction.topics, EPOCH_BUMP,
            verify_only=transaction.verify_only,
        )  # fmt: skip
        topics = await _topics(request, transaction.topics, codes.__getitem__)
        results.append(entity(result, transactional_id=transaction.transactional_id, topic_results=topics))
    return respond(request, results_by_transaction=tuple(results))


def _add(
    broker: Broker,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    topics: Any,
    client_version: int,
    *,
    verify_only: bool,
    refused: Callable[[str], bool] = lambda topic: False,
) -> Codes:
    codes: dict[TopicPartition, ErrorCode] = {}
    missing = False
    for one in (TopicPartition(topic.name, index) for topic in topics for index in topic.partitions):
        codes[one] = _obstacle(broker, one, refused)
        missing = missing or codes[one] is not ErrorCode.operation_not_attempted
    if missing:
        return codes
    wanted = frozenset(codes)
    try:
        if verify_only:
            return broker.transactions.verify_partitions(transactional_id, producer, wanted)
        broker.transactions.add_partitions(transactional_id, producer, wanted, client_version)
        code = ErrorCode.none
    except BrokerError as error:
        code = error.code
    return dict.fromkeys(wanted, code)


def _refused(request: Request, topic: str) -> bool:
    """Clients do not write to internal topics, whatever they may."""
    return is_internal(topic) or bool(request.refused(topic))


def _obstacle(broker: Broker, partition: TopicPartition, refused: Callable[[str], bool]) -> ErrorCode:
    if refused(partition.topic):
        return ErrorCode.topic_authorization_failed
    topic = broker.topics.get(partition.topic)
    if topic is None or not 0 <= partition.partition < topic.partitions:
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.operation_not_attempted


async def _topics(request: Request, topics: Any, code_of: Callable[[TopicPartition], ErrorCode]) -> tuple[Any, ...]:
    module = response_module(request)

    def of_partition(topic: Any, index: int) -> Any:
        code = known_code(request, code_of(TopicPartition(topic.name, index)))
        return entity(module.AddPartitionsToTxnPartitionResult, partition_index=index, partition_error_code=code)

    def of_topic(topic: Any, partitions: Any) -> Any:
        return entity(module.AddPartitionsToTxnTopicResult, name=topic.name, results_by_partition=partitions)

    return await per_partition(topics, of_partition, of_topic)
