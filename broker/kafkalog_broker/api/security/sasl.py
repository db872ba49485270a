"""SASL authentication. `net/sasl_gate.py` decides when these requests are allowed.

17 SaslHandshake, versions 0 and 1: the mechanism that a client will use.
v0  the mechanism's messages follow as frames without a request header
v1  they follow in SaslAuthenticate requests

36 SaslAuthenticate, versions 0 to 2: the messages of the mechanism.
v1  session_lifetime_ms: when the client must authenticate again (KIP-368)
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response
from kafkalog_broker.security.sasl_mechanism import SaslFailed


@api(17, 0, 1)
def sasl_handshake(request: Request, broker: Broker) -> Any:
    exchange = request.connection.sasl
    # exchange is None: the listener has no SASL, or the client has authenticated already. failure: the gate has refused
    # the request, for example a second handshake.
    if exchange is None or exchange.failure is not None:
        return build_response(request, error_code=ErrorCode.illegal_sasl_state)
    is_enabled = exchange.handshake(request.entity.mechanism)
    code = ErrorCode.none if is_enabled else ErrorCode.unsupported_sasl_mechanism
    return build_response(request, error_code=code, mechanisms=exchange.mechanisms)


@api(36, 0, 2)
def sasl_authenticate(request: Request, broker: Broker) -> Any:
    exchange = request.connection.sasl
    if exchange is None:
        message = "SaslAuthenticate request received after successful authentication"
        return build_response(request, error_code=ErrorCode.illegal_sasl_state, error_message=message)
    try:
        server_message = exchange.authenticate(bytes(request.entity.auth_bytes))
    except SaslFailed as error:
        return build_response(
            request, error_code=ErrorCode.sasl_authentication_failed, error_message=error.client_message or ""
        )
    # 0: the session does not expire, or the exchange is not complete yet.
    lifetime_ms = 0 if exchange.session is None else exchange.session.lifetime_ms or 0
    return build_response(request, error_message="", auth_bytes=server_message, session_lifetime=lifetime_ms)
