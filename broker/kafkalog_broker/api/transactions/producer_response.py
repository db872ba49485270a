"""Response of InitProducerId and EndTxn: an error code, and a producer ID with its epoch."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.api.error_responses import code_for_version
from kafkalog_broker.coordinator.coordinator_record import ProducerIdAndEpoch
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import on_error
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response
from kafkalog_spark.format.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

INIT_PRODUCER_ID, END_TXN = 22, 26
NO_PRODUCER = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def producer_response(request: Request, producer: ProducerIdAndEpoch, code: ErrorCode = ErrorCode.none) -> Any:
    return build_response(request, error_code=code, producer_id=producer.producer_id, producer_epoch=producer.epoch)


@on_error(INIT_PRODUCER_ID)
@on_error(END_TXN)
def producer_error_response(request: Request, code: ErrorCode) -> Any:
    return producer_response(request, NO_PRODUCER, code_for_version(request, code))
