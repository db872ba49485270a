"""81 RemoveRaftVoter, version 0: refused as by a Kafka whose voters are in its configuration (kraft.version 0)."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.acls import TEXTS
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, response_module


@api(81, 0, 0)
async def handle(request: Request, broker: Broker) -> Any:
    why = "Cluster doesn't support removing voter because the kraft.version feature is 0"
    return _answer(request, ErrorCode.unsupported_version, why)


@on_error(81)
def failed(request: Request, code: ErrorCode) -> Any:
    return _answer(request, code, TEXTS[code])


def _answer(request: Request, code: ErrorCode, what: str | None) -> Any:
    return entity(response_module(request).RemoveRaftVoterResponse, error_code=code, error_message=what)
