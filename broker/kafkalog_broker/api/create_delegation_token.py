"""38 CreateDelegationToken, versions 1 to 3: there are no tokens (`admin/delegation_tokens.py`).

v2  flexible
v3  tokens for somebody else (KIP-373)
"""

from __future__ import annotations

import struct
from typing import Any

from kafkalog_broker.admin.delegation_tokens import no_time, why_not
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.acls import Operation, ResourceType
from kafkalog_broker.protocol.api_registry import Encoded, Request, api
from kafkalog_broker.protocol.frames import compact_string, legacy_string

USER = "User"
_FLEXIBLE_FROM = 2
_OWNERS_FROM = 3
_TIMES = 3
_THROTTLE = bytes(4)


@api(38, 1, 3)
async def handle(request: Request, broker: Broker) -> Any:
    asked = request.entity
    own_kind, _, own_name = request.connection.principal.partition(":")
    kind, name = own_kind, own_name
    if getattr(asked, "owner_principal_name", None):
        kind, name = asked.owner_principal_type or "", asked.owner_principal_name
    code = why_not(request, broker)
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
    times = _TIMES * struct.pack(">q", no_time(code))
    return Encoded([body + times + string("") + no_hmac + _THROTTLE + (b"\0" if flexible else b"")])
