"""17 SaslHandshake, versions 0 and 1: which mechanism the client will use. What may come when: `net/sasl_gate.py`.

v0  the mechanism's messages follow as bare frames; v1: as SaslAuthenticate.
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import entity, response_module


@api(17, 0, 1)
async def handle(request: Request, broker: Broker) -> Any:
    response = response_module(request).SaslHandshakeResponse
    exchange = request.connection.sasl
    if exchange is None or exchange.refused is not None:  # without SASL, authenticated already, or a second one
        return entity(response, error_code=ErrorCode.illegal_sasl_state, mechanisms=())
    served = exchange.handshake(request.entity.mechanism)
    code = ErrorCode.none if served else ErrorCode.unsupported_sasl_mechanism
    return entity(response, error_code=code, mechanisms=exchange.mechanisms)
