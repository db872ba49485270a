"""0 Produce, versions 0 to 13: appends batches. This file translates; `storage/append/appender.py` appends.

Kafka 4 lists versions 0 to 2 in ApiVersions, because librdkafka before 2.11 otherwise sends without compression
(KAFKA-18659), but closes the connection when it receives one. This broker serves them as the protocol guides describe
them: a message set v0 or v1 becomes a v2 batch.

acks 0   no response; an error closes the connection, which is the only way to notify the producer
acks 1   responds when the batch is in the log, and on disk if flush.messages requires it
acks -1  the same as 1, because this node is the only in-sync replica

v1   throttle time in the response
v2   timestamps: message sets v1, and the append time in the response
v3   v2 batches, one for each partition; transactional ID
v5   log_start_offset in the response
v7   zstd (KIP-110)
v8   record_errors and error_message: which records of a refused batch are invalid
v10  node endpoints (KIP-951), always empty: this node leads all partitions
v11  TRANSACTION_ABORTABLE instead of INVALID_TXN_STATE (KIP-890)
v12  the batch adds its partition to the transaction
v13  topics by ID (KIP-516)
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Iterator
from typing import Any, cast
from uuid import UUID

from kafkalog_broker.api.records.produce_transaction import ProduceTransaction
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import Operation, ResourceType
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.produce_messages import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    RecordError,
    TopicProduceResponse,
)
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.runtime.log_rate import LogRate
from kafkalog_broker.storage.append.topic_rules import InvalidRecords
from kafkalog_broker.storage.partition.log import AppendInfo, Log
from kafkalog_broker.transactions.transaction_verification import PRODUCE_GENERIC_ERROR_VERSION, SupportedOperation
from kafkalog_spark.format import layout
from kafkalog_spark.format.codecs import CODECS, KAFKA_CODECS
from kafkalog_spark.format.layout import Codec
from kafkalog_spark.format.names import is_written_by_broker

_refusal_log = LogRate(logging.getLogger(__name__))

ACKS_ALL, ACKS_LEADER, ACKS_NONE = -1, 1, 0
_ACKS = (ACKS_ALL, ACKS_LEADER, ACKS_NONE)
FIRST_BATCH_VERSION = 3
_FIRST_VERSIONS = {
    codec: facts.first_produce_version for codec, facts in CODECS.items() if facts.first_produce_version is not None
}
"""First version of Produce requests that may carry a codec."""
_FLAGS_AT = layout.ATTRIBUTES_AT + 1
"""Position of the low byte of a batch's attributes, which has the codec and the transactional flag."""
_ALL_CODECS_VERSION = max(_FIRST_VERSIONS.values())
_ADMIN_CLIENT = "__admin_client"
"""Client ID that may write to internal topics if it is authorized (Kafka: `AdminUtils.ADMIN_CLIENT_ID`).

In Kafka every authorized client may write to `__remote_log_metadata`, because Kafka's brokers do so as clients. This
broker appends to it directly and trusts its records at startup, so only this client ID may write there."""
_ERRORS_LOGGED_AS_WARNINGS = frozenset({
    ErrorCode.corrupt_message, ErrorCode.invalid_fetch_size, ErrorCode.invalid_record, ErrorCode.invalid_timestamp,
    ErrorCode.kafka_storage_error, ErrorCode.message_too_large, ErrorCode.record_list_too_large,
    ErrorCode.unsupported_compression_type,
})  # fmt: skip
"""Errors that a correct client does not cause. Other errors occur in normal operation."""


@api(0, 0, 13)
def produce(request: Request, broker: Broker) -> ProduceResponse | Coroutine[Any, Any, ProduceResponse | None] | None:
    """Append the batches of a request.

    Nearly all requests have one batch. If its append awaits nothing, the response is returned without a coroutine.
    """
    if request.access is not None and _lacks_transactional_right(request):
        return _refuse_all(request, ErrorCode.transactional_id_authorization_failed)
    topics = cast(ProduceRequest, request.entity).topics
    if len(topics) != 1 or len(topics[0][1]) != 1:
        return _append_to_many(request, broker)
    topic, ((index, records),) = topics[0]
    appended = _append(request, broker, topic, index, records)
    if isinstance(appended, PartitionProduceResponse):
        return _response(request, [TopicProduceResponse(topic, [appended])])
    return _respond_when_appended(request, topic, appended)


def _lacks_transactional_right(request: Request) -> bool:
    """Return True if a batch is transactional and the sender may not use the transactional ID of the request."""
    entity: ProduceRequest = request.entity
    batches: Iterator[memoryview] = (
        records for _, partitions in entity.topics for _, records in partitions if records is not None
    )
    if request.version < FIRST_BATCH_VERSION or not any(map(_is_transactional, batches)):
        return False
    name = entity.transactional_id
    return name is None or not request.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)


def _is_transactional(batch: memoryview) -> bool:
    return len(batch) > _FLAGS_AT and bool(batch[_FLAGS_AT] & layout.ATTRIBUTE_TRANSACTIONAL)


async def _respond_when_appended(
    request: Request, topic: str | UUID, appended: Coroutine[Any, Any, PartitionProduceResponse]
) -> ProduceResponse | None:
    return _response(request, [TopicProduceResponse(topic, [await appended])])


async def _append_to_many(request: Request, broker: Broker) -> ProduceResponse | None:
    time_slice = TimeSlice()
    responses: list[TopicProduceResponse] = []
    for topic, partitions in _last_batches(request.entity).items():
        partition_responses: list[PartitionProduceResponse] = []
        for index, records in partitions.items():
            if time_slice.is_over:
                await time_slice.wait_turn()
            appended = _append(request, broker, topic, index, records)
            partition_responses.append(appended if isinstance(appended, PartitionProduceResponse) else await appended)
        responses.append(TopicProduceResponse(topic, partition_responses))
    return _response(request, responses)


def _refuse_all(request: Request, code: ErrorCode) -> ProduceResponse | None:
    return _response(request, [
        TopicProduceResponse(topic, [PartitionProduceResponse(index, code) for index in partitions])
        for topic, partitions in _last_batches(request.entity).items()
    ])  # fmt: skip


def _last_batches(entity: ProduceRequest) -> dict[str | UUID, dict[int, memoryview | None]]:
    """Return the records by topic and partition. As in Kafka, the last of several batches for one partition is used."""
    batches: dict[str | UUID, dict[int, memoryview | None]] = {}
    for topic, partitions in entity.topics:
        batches.setdefault(topic, {}).update(partitions)
    return batches


def _response(request: Request, responses: list[TopicProduceResponse]) -> ProduceResponse | None:
    """Return the response, or None for acks=0.

    Raises:
        BrokerError: If a request with acks=0 had an error. This closes the connection.
    """
    if request.entity.acks != ACKS_NONE:
        return ProduceResponse(responses)
    for topic, partitions in responses:
        for partition in partitions:
            if partition.error_code:
                code = ErrorCode(partition.error_code)
                raise BrokerError(code, f"Produce with acks=0 to {topic}-{partition.index}: {partition.error_message}")
    return None


def _append(
    request: Request, broker: Broker, topic: str | UUID, index: int, records: memoryview | None
) -> PartitionProduceResponse | Coroutine[Any, Any, PartitionProduceResponse]:
    """Append the records of one partition and return its response, which reports an error of this partition only."""
    entity, version = request.entity, request.version
    try:
        if entity.acks not in _ACKS:
            raise BrokerError(ErrorCode.invalid_required_acks, f"acks={entity.acks}, expected -1, 0 or 1")
        log = _log(request, broker, topic, index)
        transaction = None
        if entity.transactional_id is not None:
            transaction = ProduceTransaction(
                broker, entity.transactional_id, SupportedOperation.of(version, PRODUCE_GENERIC_ERROR_VERSION)
            )
        appended: AppendInfo | Coroutine[Any, Any, AppendInfo]
        if version < FIRST_BATCH_VERSION:
            message_set = _checked_message_set(log, records, entity.acks)
            appended = broker.appender.append_message_set(log, message_set, transaction)
        else:
            appended = broker.appender.append(log, _checked_batch(records, version), transaction)
    except BrokerError as error:
        return _error_response(error, request, broker, topic, index)
    if isinstance(appended, AppendInfo):
        return _success_response(appended, index)
    return _result_when_appended(appended, request, broker, topic, index)


async def _result_when_appended(
    appending: Coroutine[Any, Any, AppendInfo], request: Request, broker: Broker, topic: str | UUID, index: int
) -> PartitionProduceResponse:
    try:
        return _success_response(await appending, index)
    except BrokerError as error:
        return _error_response(error, request, broker, topic, index)


def _log(request: Request, broker: Broker, topic: str | UUID, index: int) -> Log:
    """Return the log of a partition. Raises BrokerError if the sender may not write to it."""
    name = topic if isinstance(topic, str) else broker.topic_name(topic)
    if request.access is not None and request.authorization_error(name):
        raise BrokerError(ErrorCode.topic_authorization_failed)
    if is_written_by_broker(name) and request.client_id != _ADMIN_CLIENT and name in broker.topics:
        raise BrokerError(ErrorCode.invalid_topic_exception, f"clients may not write to the internal topic {name}")
    if broker.mirror_source is not None:
        broker.check_not_mirrored(f"records for {name} are refused")
    return broker.log(name, index)


def _checked_batch(records: memoryview | None, version: int) -> memoryview:
    """Return the batch of a request of version 3 or later (Kafka: `ProduceRequest.validateRecords`).

    Raises:
        BrokerError: If there is no batch, or its codec is newer than the version of the request.
    """
    if not records:
        raise BrokerError(ErrorCode.invalid_record, "a produce request needs one batch per partition, there is none")
    if version < _ALL_CODECS_VERSION:
        codec = records[_FLAGS_AT] & layout.ATTRIBUTE_CODEC if len(records) > _FLAGS_AT else Codec.NONE
        if version < _FIRST_VERSIONS.get(Codec(codec) if codec in KAFKA_CODECS else Codec.NONE, 0):
            name = "ZStandard" if codec == Codec.ZSTD else Codec(codec).label
            raise BrokerError(
                ErrorCode.unsupported_compression_type,
                f"Produce requests with version {version} are not allowed to use {name} compression",
            )
    return records


def _checked_message_set(log: Log, records: memoryview | None, acks: int) -> memoryview:
    """Return the message set of a request of version 0 to 2. Raises BrokerError."""
    if records is None:
        raise BrokerError(ErrorCode.invalid_record, "there is no message set")
    if acks == ACKS_ALL and log.config.min_insync_replicas > 1:
        raise BrokerError(
            ErrorCode.not_enough_replicas,
            f"min.insync.replicas is {log.config.min_insync_replicas}, but there is one replica",
        )
    return records


def _success_response(info: AppendInfo, index: int) -> PartitionProduceResponse:
    return PartitionProduceResponse(index, 0, info.base_offset, info.log_append_time_ms, info.log_start_offset)


def _error_response(
    error: BrokerError, request: Request, broker: Broker, topic: str | UUID, index: int
) -> PartitionProduceResponse:
    if broker.traffic is not None:
        broker.traffic.count_failed_request(request.api_key, error.code)
    level = logging.WARNING if error.code in _ERRORS_LOGGED_AS_WARNINGS else logging.DEBUG
    _refusal_log.log(level, "Produce to %s-%d from %s refused: %s", topic, index, request.connection, error)
    if isinstance(error, InvalidRecords):
        records = [RecordError(record.batch_index, record.message) for record in error.records]
        return PartitionProduceResponse(
            index, error.code, record_errors=records, error_message=error.what, log_start_offset=-1
        )
    message = None if error.code is ErrorCode.topic_authorization_failed else error.what  # as in Kafka
    code = error.code
    if request.version < FIRST_BATCH_VERSION and code is ErrorCode.kafka_storage_error:
        code = ErrorCode.not_leader_or_follower  # kafka_storage_error is unknown to these clients
    return PartitionProduceResponse(index, code, error_message=message)
