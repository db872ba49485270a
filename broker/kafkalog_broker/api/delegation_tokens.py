"""Delegation tokens (KIP-48), which this broker does not issue: as a Kafka without delegation.token.secret.key.

38 CreateDelegationToken, versions 1 to 3; 39 RenewDelegationToken and 40 ExpireDelegationToken, versions 1 and 2;
41 DescribeDelegationToken, versions 1 to 3. Version 2 is flexible, version 3 has tokens for other owners (KIP-373).
"""

from __future__ import annotations

import struct
from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.acls import Operation, ResourceType
from kafkalog_broker.protocol.api_registry import ANONYMOUS, Encoded, Request, api
from kafkalog_broker.protocol.frames import compact_string, legacy_string
from kafkalog_broker.protocol.response_entity import respond

_NO_TIME = -1
"""Times of an answer without a token, where a broker of Kafka's refuses it; where a controller does, they are 0. kio
can write none before 1970, so these answers are written by hand."""

USER = "User"
_FLEXIBLE_FROM = 2
_OWNERS_FROM = 3
_TIMES = 3
_THROTTLE = bytes(4)


@api(38, 1, 3)
async def create_delegation_token(request: Request, broker: Broker) -> Any:
    asked = request.entity
    own_kind, _, own_name = request.connection.principal.partition(":")
    kind, name = own_kind, own_name
    if getattr(asked, "owner_principal_name", None):
        kind, name = asked.owner_principal_type or "", asked.owner_principal_name
    code = _error_of(request, broker)
    if code is ErrorCode.delegation_token_auth_disabled:
        if (kind, name) != (own_kind, own_name) and not request.may(
            Operation.CREATE_TOKENS, ResourceType.USER, f"{kind}:{name}"
        ):
            code = ErrorCode.delegation_token_authorization_failed
        elif any(renewer.principal_type != USER for renewer in asked.renewers):
            code = ErrorCode.invalid_principal_type
    flexible = request.version >= _FLEXIBLE_FROM
    string = compact_string if flexible else legacy_string
    body = struct.pack(">h", code) + string(kind) + string(name)
    if request.version >= _OWNERS_FROM:
        body += string(own_kind) + string(own_name)
    no_hmac = b"\1" if flexible else bytes(4)
    times = _TIMES * struct.pack(">q", _no_time(code))
    return Encoded([body + times + string("") + no_hmac + _THROTTLE + (b"\0" if flexible else b"")])


@api(39, 1, 2)
async def renew_delegation_token(request: Request, broker: Broker) -> Any:
    return _without_token(request, broker)


@api(40, 1, 2)
async def expire_delegation_token(request: Request, broker: Broker) -> Any:
    return _without_token(request, broker)


@api(41, 1, 3)
async def describe_delegation_token(request: Request, broker: Broker) -> Any:
    return respond(request, error_code=_error_of(request, broker))


def _error_of(request: Request, broker: Broker) -> ErrorCode:
    """Error of every request about tokens, never `none`; another one for clients that did not authenticate."""
    protocol = broker.config.listener_security[request.connection.listener].protocol
    if protocol == "PLAINTEXT" or (protocol == "SSL" and request.connection.principal == ANONYMOUS):
        return ErrorCode.delegation_token_request_not_allowed
    return ErrorCode.delegation_token_auth_disabled


def _no_time(code: ErrorCode) -> int:
    """The time in an answer with that error."""
    return 0 if code is ErrorCode.delegation_token_auth_disabled else _NO_TIME


def _without_token(request: Request, broker: Broker) -> Encoded:
    """Answer of Renew- and ExpireDelegationToken, whose version 2 is flexible."""
    code = _error_of(request, broker)
    body = struct.pack(">hqi", code, _no_time(code), 0)
    return Encoded([body + (b"\0" if request.version >= 2 else b"")])
