"""SASL authentication; `net/sasl_gate.py` decides what may come when.

17 SaslHandshake, versions 0 and 1: the mechanism that a client will use.
v0  the mechanism's messages follow as bare frames; v1: as SaslAuthenticate

36 SaslAuthenticate, versions 0 to 2: the messages of a mechanism.
v1  session_lifetime_ms: when the client has to authenticate again (KIP-368)"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import respond
from kafkalog_broker.security.sasl import Refused


@api(17, 0, 1)
async def sasl_handshake(request: Request, broker: Broker) -> Any:
    exchange = request.connection.sasl
    if exchange is None or exchange.refused is not None:  # without SASL, authenticated already, or a second one
        return respond(request, error_code=ErrorCode.illegal_sasl_state)
    served = exchange.handshake(request.entity.mechanism)
    code = ErrorCode.none if served else ErrorCode.unsupported_sasl_mechanism
    return respond(request, error_code=code, mechanisms=exchange.mechanisms)


@api(36, 0, 2)
async def sasl_authenticate(request: Request, broker: Broker) -> Any:
    exchange = request.connection.sasl
    if exchange is None:
        what = "SaslAuthenticate request received after successful authentication"
        return respond(request, error_code=ErrorCode.illegal_sasl_state, error_message=what)
    try:
        answer = exchange.token(bytes(request.entity.auth_bytes))
    except Refused as error:
        return respond(request, error_code=ErrorCode.sasl_authentication_failed, error_message=error.shown or "")
    lifetime_ms = 0 if exchange.session is None else exchange.session.lifetime_ms or 0  # 0: for ever, or ended
    return respond(request, error_message="", auth_bytes=answer, session_lifetime=timedelta(milliseconds=lifetime_ms))
