"""0 Produce, versions 3 to 13.

Kafka tells clients that it serves version 0 on and closes the connection on 0 to 2: librdkafka before 2.11 sends
without compression where the lowest is not 0 (KAFKA-18659). The same here.

acks 0   no answer at all; a batch that is refused ends the connection, as the only sign there is
acks 1   answered when the batch is in the log (and on disk where flush.messages asks for it)
acks -1  the same on one node: its log is the whole in-sync set

v5   log_start_offset in the answer
v8   record_errors and error_message: which records of a refused batch were wrong
v10  node endpoints (KIP-951): not needed, this node leads what it knows
v13  topics by id (KIP-516)
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from uuid import UUID

from broker.errors import BrokerError, ErrorCode
from broker.protocol.api_registry import Encoded, Request, api
from broker.protocol.produce_request import ProduceRequest
from broker.protocol.produce_response import PartitionProduceResponse, encode_produce_response
from broker.storage.append_validation import InvalidRecordErrors, validate_batch
from broker.storage.validation_cost import bytes_at_once
from kafkalog_spark.errors import UnfoldsTooFar
from kafkalog_spark.log.names import is_internal

if TYPE_CHECKING:
    from broker.server import Broker
    from broker.storage.log import AppendInfo, Log

_logger = logging.getLogger("kafkalog.broker")

ALL, LEADER, NONE = -1, 1, 0


@api(0, 3, 13, advertised_min=0)
async def handle(request: Request, broker: Broker) -> Encoded | None:
    asked: ProduceRequest = request.entity
    answers: list[tuple[str | UUID, list[PartitionProduceResponse]]] = []
    for topic, partitions in asked.topics:
        told = [await _answer(asked, topic, index, records, broker) for index, records in partitions]
        answers.append((topic, told))
    if asked.acks != NONE:
        return encode_produce_response(request.version, answers)
    for topic, told in answers:
        for partition in told:
            if partition.error_code:
                code = ErrorCode(partition.error_code)
                # nothing else tells a producer that does not wait for answers
                raise BrokerError(code, f"Produce with acks=0 to {topic}-{partition.index}: {partition.error_message}")
    return None


async def _answer(
    asked: ProduceRequest, topic: str | UUID, index: int, records: memoryview | None, broker: Broker
) -> PartitionProduceResponse:
    """What becomes of one partition's batch, errors included: one that is refused says nothing of the others."""
    try:
        if asked.acks not in (ALL, LEADER, NONE):
            raise BrokerError(ErrorCode.invalid_required_acks, f"acks is -1, 0 or 1, not {asked.acks}")
        log = _log(topic, index, broker)
        info = await _append(log, records, broker)
        return PartitionProduceResponse(index, 0, info.base_offset, info.log_append_time_ms, info.log_start_offset)
    except InvalidRecordErrors as error:
        return PartitionProduceResponse(
            index, error.code, record_errors=error.errors, error_message=error.what, log_start_offset=-1
        )
    except BrokerError as error:
        _logger.log(_level(error.code), "Produce to %s-%d refused: %s", topic, index, error)
        return PartitionProduceResponse(index, error.code, error_message=error.what)


def _level(code: ErrorCode) -> int:
    """Unknown topics are the normal course of things; a corrupt batch is somebody's defect."""
    return logging.WARNING if code in (ErrorCode.corrupt_message, ErrorCode.kafka_storage_error) else logging.DEBUG


def _log(topic: str | UUID, index: int, broker: Broker) -> Log:
    if isinstance(topic, UUID):
        known = broker.topics.by_id(topic)
        if known is None:
            raise BrokerError(ErrorCode.unknown_topic_id, f"there is no topic with id {topic}")
        name = known.name
    else:
        name = topic
    if is_internal(name):
        raise BrokerError(ErrorCode.invalid_topic_exception, f"clients do not write to the internal topic {name}")
    return broker.log(name, index)


async def _append(log: Log, records: memoryview | None, broker: Broker) -> AppendInfo:
    if not records:
        raise BrokerError(ErrorCode.invalid_record, "a produce request needs one batch per partition, there is none")
    now_ms = broker.clock.now_ms()
    compacted = "compact" in log.config.cleanup_policy
    at_once = bytes_at_once(records, log.config.compression_type)
    arguments = (records, log.config, now_ms)
    try:
        batch = validate_batch(*arguments, is_compacted=compacted, unfold_limit=at_once) if at_once else None
    except UnfoldsTooFar:
        batch = None
    if batch is None:
        batch = await broker.run_blocking(validate_batch, *arguments, is_compacted=compacted)
    info = log.append(batch, now_ms)
    await broker.flush_if_due(log)
    return info
