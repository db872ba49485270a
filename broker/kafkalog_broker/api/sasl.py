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
from kafkalog_broker.protocol.response_entity import entity, response_module
from kafkalog_broker.security.sasl import Refused


@api(17, 0, 1)
async def sasl_handshake(request: Request, broker: Broker) -> Any:
    response = response_module(request).SaslHandshakeResponse
    exchange = request.connection.sasl
    if exchange is None or exchange.refused is not None:  # without SASL, authenticated already, or a second one
        return entity(response, error_code=ErrorCode.illegal_sasl_state, mechanisms=())
    served = exchange.handshake(request.entity.mechanism)
    code = ErrorCode.none if served else ErrorCode.unsupported_sasl_mechanism
    return entity(response, error_code=code, mechanisms=exchange.mechanisms)


@api(36, 0, 2)
async def sasl_authenticate(request: Request, broker: Broker) -> Any:
    exchange = request.connection.sasl
    if exchange is None:
        return _authentication(
            request,
            error_code=ErrorCode.illegal_sasl_state,
            error_message="SaslAuthenticate request received after successful authentication",
        )
    try:
        answer = exchange.token(bytes(request.entity.auth_bytes))
    except Refused as error:
        return _authentication(
            request, error_code=ErrorCode.sasl_authentication_failed, error_message=error.shown or ""
        )
    lifetime = 0 if exchange.session is None else exchange.session.lifetime_ms or 0  # 0: for ever, or ended
    return _authentication(request, auth_bytes=answer, lifetime_ms=lifetime)


def _authentication(
    request: Request,
    *,
    error_code: ErrorCode = ErrorCode.none,
    error_message: str = "",
    auth_bytes: bytes = b"",
    lifetime_ms: int = 0,
) -> Any:
    lifetime = {"session_lifetime": timedelta(milliseconds=lifetime_ms)} if request.version >= 1 else {}
    return entity(
        response_module(request).SaslAuthenticateResponse,
        error_code=error_code,
        error_message=error_message,
        auth_bytes=auth_bytes,
        **lifetime,
    )
