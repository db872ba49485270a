"""0 Produce, versions 0 to 13.

Kafka 4 advertises versions from 0 on, since librdkafka before 2.11 sends without compression where the lowest is not 0
(KAFKA-18659), and closes the connection on 0 to 2. Here they are served, as the protocol guides describe them: a
message set v0 or v1 becomes a v2 batch (`storage/append/message_sets.py`).

acks 0   no answer at all; a batch that is refused ends the connection, as the only sign there is
acks 1   answered when the batch is in the log (and on disk where flush.messages asks for it)
acks -1  the same on one node: its log is the whole in-sync set

v1   throttle time in the answer
v2   timestamps: message sets v1, and the append time in the answer
v3   v2 batches, one for a partition; transactional id
v5   log_start_offset in the answer
v7   a transactional batch in a partition that was not added: INVALID_TXN_STATE
v8   record_errors and error_message: which records of a refused batch were wrong
v10  node endpoints (KIP-951): not needed, this node leads what it knows
v11  TRANSACTION_ABORTABLE instead (KIP-890)
v12  the batch adds its partition to the transaction
v13  topics by id (KIP-516)
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Sequence
from typing import Any, cast
from uuid import UUID

from kafkalog_broker.broker import Broker
from kafkalog_broker.coordinator.coordinator_record import ProducerIdAndEpoch
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import Operation, ResourceType
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.hot_messages import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    RecordError,
    TopicProduceResponse,
)
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.runtime.process import LogRate
from kafkalog_broker.storage.append.append_validation import InvalidRecordErrors, bytes_at_once, validate_batch
from kafkalog_broker.storage.append.message_sets import validate_message_set
from kafkalog_broker.storage.append.record_walk import TakesTooLong
from kafkalog_broker.storage.partition.log import AppendInfo, Log
from kafkalog_broker.transactions.transaction_coordinator import PRODUCE_ABORTABLE, Speaks, produce_error
from kafkalog_broker.transactions.transaction_metadata import TopicPartition
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.layout import Codec
from kafkalog_spark.format.names import is_written_by_broker
from kafkalog_spark.log.write.encoded_batch import EncodedBatch

_refused = LogRate(logging.getLogger(__name__))

Topics = Sequence[tuple[str | UUID, Sequence[tuple[int, memoryview | None]]]]
Answers = list[TopicProduceResponse]
Appended = tuple[PartitionProduceResponse, Log | None]
"""An answer, and the log that is to be flushed before it is given."""
ALL, LEADER, NONE = -1, 1, 0
_ACKS = (ALL, LEADER, NONE)
FIRST_BATCH_VERSION = 3
FIRST_ZSTD_VERSION = 7  # KIP-110
_ADMIN_CLIENT = "__admin_client"
"""The client id that may write to internal topics (AdminUtils.ADMIN_CLIENT_ID); it needs the right to, as everybody.

Kafka lets everybody with the right write to `__remote_log_metadata`, because its brokers do so as clients. This broker
appends to it directly, and believes its records at the start, so that only the same client id may write there."""
_DEFECTS = frozenset({
    ErrorCode.corrupt_message, ErrorCode.invalid_fetch_size, ErrorCode.invalid_record, ErrorCode.invalid_timestamp,
    ErrorCode.kafka_storage_error, ErrorCode.message_too_large, ErrorCode.record_list_too_large,
    ErrorCode.unsupported_compression_type,
})  # fmt: skip
"""Errors that are logged: batches that no client should send. Unknown topics and sequences are a normal thing."""


@api(0, 0, 13)
def handle(request: Request, broker: Broker) -> ProduceResponse | Coroutine[Any, Any, ProduceResponse | None] | None:
    """Answered without a coroutine where one batch came, nearly always, and nothing is to be waited for, which is worth
    4 percent of requests with one record."""
    topics = cast(ProduceRequest, request.entity).topics
    if request.access is not None and _is_refused(request):
        code = ErrorCode.transactional_id_authorization_failed
        return _response(request, [
            TopicProduceResponse(topic, [PartitionProduceResponse(index, code) for index, _ in some])
            for topic, some in _once(topics)
        ])  # fmt: skip
    if len(topics) == 1 and len(topics[0][1]) == 1:
        topic, ((index, records),) = topics[0]
        appended = _append_at_once(request, topic, index, records, broker)
        if appended is not None and appended[1] is None:
            return _response(request, [TopicProduceResponse(topic, [appended[0]])])
        return _answers(request, broker, appended, is_tried=True)
    return _answers(request, broker)


def _is_refused(request: Request) -> bool:
    asked: ProduceRequest = request.entity
    batches = (records for _, partitions in asked.topics for _, records in partitions if records is not None)
    low, bit = layout.ATTRIBUTES_AT + 1, layout.ATTRIBUTE_TRANSACTIONAL
    if request.version < FIRST_BATCH_VERSION or not any(len(batch) > low and batch[low] & bit for batch in batches):
        return False
    name = asked.transactional_id
    return name is None or not request.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)


def _response(request: Request, answers: Answers) -> ProduceResponse | None:
    """Raises BrokerError for a batch that was refused where nobody waits for the answer."""
    if request.entity.acks != NONE:
        return ProduceResponse(answers)
    for topic, partitions_answered in answers:
        for partition in partitions_answered:
            if partition.error_code:
                code = ErrorCode(partition.error_code)
                # the only sign for a producer that does not wait for answers
                raise BrokerError(code, f"Produce with acks=0 to {topic}-{partition.index}: {partition.error_message}")
    return None


async def _answers(
    request: Request, broker: Broker, appended: Appended | None = None, *, is_tried: bool = False
) -> ProduceResponse | None:
    """Answers of all partitions. For a request with one batch `appended` is what `_append_at_once` gave."""
    answers: Answers = []
    turn = TimeSlice()
    for topic, partitions in _once(request.entity.topics):
        partitions_answered = []
        for index, records in partitions:
            if turn.over and not is_tried:
                await turn.next()
            if not is_tried:
                appended = _append_at_once(request, topic, index, records, broker)
            partitions_answered.append(await _answer(request, topic, index, records, broker, appended))
        answers.append(TopicProduceResponse(topic, partitions_answered))
    return _response(request, answers)


def _once(topics: Topics) -> Topics:
    """Each partition once: of several batches for one the last counts, as in Kafka, which keeps them in a map."""
    last: dict[str | UUID, dict[int, memoryview | None]] = {}
    for topic, partitions in topics:
        last.setdefault(topic, {}).update(partitions)
    return [(topic, list(partitions.items())) for topic, partitions in last.items()]


def _append_at_once(
    request: Request, topic: str | UUID, index: int, records: memoryview | None, broker: Broker
) -> Appended | None:
    """None where a thread has to validate the batch, or where its transaction is to be flushed; nothing was appended
    then."""
    asked: ProduceRequest = request.entity
    try:
        if asked.acks not in _ACKS:
            raise BrokerError(ErrorCode.invalid_required_acks, f"acks is -1, 0 or 1, not {asked.acks}")
        log = _log(request, topic, index, broker)
        if request.version < FIRST_BATCH_VERSION:
            return None
        if not records:
            raise BrokerError(
                ErrorCode.invalid_record, "a produce request needs one batch per partition, there is none"
            )
        if request.version < FIRST_ZSTD_VERSION:
            _check_not_zstd(records, request.version)
        at_once = bytes_at_once(records)
        if not at_once:
            return None
        now_ms = broker.clock.now_ms()
        batch = validate_batch(records, log.config, now_ms, at_once=at_once)
        return _append(request, log, batch, now_ms, broker)
    except TakesTooLong:
        return None
    except BrokerError as error:
        return _refusal(error, request, topic, index, broker), None


async def _answer(
    request: Request, topic: str | UUID, index: int, records: memoryview | None, broker: Broker,
    appended: Appended | None,
) -> PartitionProduceResponse:  # fmt: skip
    """The answer for one partition's batch, errors included: one that is refused says nothing of the others."""
    try:
        if appended is None:
            log, now_ms = _log(request, topic, index, broker), broker.clock.now_ms()
            if request.version < FIRST_BATCH_VERSION:
                _check_message_set(log, records, request.entity.acks)
            validate = validate_message_set if request.version < FIRST_BATCH_VERSION else validate_batch
            batch = await broker.run_computing(validate, records, log.config, now_ms)
            if batch is None:  # an empty message set
                return _taken(AppendInfo(-1, -1, -1, log.log_start_offset), index)
            while (appended := _append(request, log, batch, now_ms, broker)) is None:
                await _flush_transaction(broker, request)
        answer, due = appended
        if due is not None:
            await broker.flush_if_due(due)
    except BrokerError as error:
        return _refusal(error, request, topic, index, broker)
    return answer


def _append(request: Request, log: Log, batch: EncodedBatch, now_ms: int, broker: Broker) -> Appended | None:
    """None where the record by which its transaction owns this partition is to be flushed first."""
    if batch.header.is_transactional and not _verify(
        log, batch.header, broker, request.entity.transactional_id, request.version
    ):
        return None
    answer = _taken(log.append(batch, now_ms), log.partition)
    return answer, log if log.needs_flush(now_ms) else None


async def _flush_transaction(broker: Broker, request: Request) -> None:
    """Raises BrokerError with a code after which the producer sends the batch again."""
    try:
        await broker.transaction_ends.flush(request.entity.transactional_id)
    except BrokerError as error:
        raise produce_error(error, Speaks.of(request.version, PRODUCE_ABORTABLE)) from error


def _check_not_zstd(records: memoryview, version: int) -> None:
    """Rule of Kafka's ProduceRequest.validateRecords: clients of such versions may not be able to read it."""
    at = layout.ATTRIBUTES_AT + 1
    if len(records) > at and records[at] & layout.ATTRIBUTE_CODEC == Codec.ZSTD:
        raise BrokerError(
            ErrorCode.unsupported_compression_type,
            f"Produce requests with version {version} are not allowed to use ZStandard compression",
        )


def _check_message_set(log: Log, records: memoryview | None, acks: int) -> None:
    if records is None:
        raise BrokerError(ErrorCode.invalid_record, "there is no message set")
    if acks == ALL and log.config.min_insync_replicas > 1:
        raise BrokerError(
            ErrorCode.not_enough_replicas,
            f"min.insync.replicas is {log.config.min_insync_replicas}, one replica is there",
        )


def _taken(info: AppendInfo, index: int) -> PartitionProduceResponse:
    return PartitionProduceResponse(index, 0, info.base_offset, info.log_append_time_ms, info.log_start_offset)


def _refusal(
    error: BrokerError, request: Request, topic: str | UUID, index: int, broker: Broker
) -> PartitionProduceResponse:
    if broker.traffic is not None:
        broker.traffic.refused(request.api_key, error.code)
    level = logging.WARNING if error.code in _DEFECTS else logging.DEBUG
    _refused.log(level, "Produce to %s-%d from %s refused: %s", topic, index, request.connection, error)
    if isinstance(error, InvalidRecordErrors):
        errors = [RecordError(*one) for one in error.errors]
        return PartitionProduceResponse(
            index, error.code, record_errors=errors, error_message=error.what, log_start_offset=-1
        )
    what = None if error.code is ErrorCode.topic_authorization_failed else error.what  # as Kafka
    code = error.code
    if request.version < FIRST_BATCH_VERSION and code is ErrorCode.kafka_storage_error:
        code = ErrorCode.not_leader_or_follower  # as these clients know it: they are to look for the leader
    return PartitionProduceResponse(index, code, error_message=what)


def _log(request: Request, topic: str | UUID, index: int, broker: Broker) -> Log:
    name = topic if isinstance(topic, str) else broker.topic_name(topic)
    if request.access is not None and request.refused(name):
        raise BrokerError(ErrorCode.topic_authorization_failed)
    if is_written_by_broker(name) and request.client_id != _ADMIN_CLIENT and name in broker.topics:
        raise BrokerError(ErrorCode.invalid_topic_exception, f"clients do not write to the internal topic {name}")
    if broker.mirrored is not None:
        broker.check_not_mirrored(f"records for {name} cannot be taken")
    return broker.log(name, index)


def _verify(log: Log, batch: BatchHeader, broker: Broker, transactional_id: str | None, version: int) -> bool:
    """Raise BrokerError unless the batch goes on with a transaction that this partition knows, or the coordinator says
    that it may begin one here. Nothing may wait between this and the append.

    Returns:
        False if the coordinator's record must be flushed before the append. Verify again then.
    """
    if transactional_id is None:
        raise BrokerError(
            ErrorCode.transactional_id_authorization_failed, "a transactional batch, and no transactional id with it"
        )
    producer = ProducerIdAndEpoch(batch.producer_id, batch.producer_epoch)
    state = log.producer_state
    if not broker.config.transaction_partition_verification_enable or state.has_open_transaction(*producer):
        return True
    speaks = Speaks.of(version, PRODUCE_ABORTABLE)
    state.verifications.begin(
        *producer, batch.base_sequence, broker.clock.now_ms(), adds_partitions=speaks is Speaks.ADDS_PARTITIONS
    )
    try:
        broker.transactions.verify(transactional_id, producer, TopicPartition(log.topic, log.partition), speaks)
        return broker.transactions.unflushed(transactional_id) is None
    except BrokerError as error:
        raise produce_error(error, speaks) from error
