"""Delegation tokens (KIP-48), which this broker does not give out: as a Kafka without delegation.token.secret.key."""

from __future__ import annotations

import struct

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import ANONYMOUS, Encoded, Request

NO_TIME = -1
"""Times of an answer without a token, where a broker of Kafka's refuses it; where a controller does, they are 0. kio
can write none before 1970, so these answers are written by hand."""


def why_not(request: Request, broker: Broker) -> ErrorCode:
    """What a request about tokens is refused with; never `none`. Who did not authenticate learns nothing."""
    protocol = broker.config.listener_security[request.connection.listener].protocol
    if protocol == "PLAINTEXT" or (protocol == "SSL" and request.connection.principal == ANONYMOUS):
        return ErrorCode.delegation_token_request_not_allowed
    return ErrorCode.delegation_token_auth_disabled


def no_time(code: ErrorCode) -> int:
    """The time in an answer with that error."""
    return 0 if code is ErrorCode.delegation_token_auth_disabled else NO_TIME


def without_token(request: Request, broker: Broker) -> Encoded:
    """The answer of Renew- and ExpireDelegationToken, of which version 2 is flexible."""
    code = why_not(request, broker)
    body = struct.pack(">hqi", code, no_time(code), 0)
    return Encoded([body + (b"\0" if request.version >= 2 else b"")])
