"""Delegation tokens (KIP-48), which this broker does not issue: responses are those of a Kafka broker without
delegation.token.secret.key.

38 CreateDelegationToken, versions 1 to 3
39 RenewDelegationToken, versions 1 and 2
40 ExpireDelegationToken, versions 1 and 2
41 DescribeDelegationToken, versions 1 to 3

v2  flexible encoding
v3  tokens for other owners (KIP-373)
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.acls import Operation, ResourceType
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.connection_info import ANONYMOUS
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response

_TIMES = ("issue_timestamp", "expiry_timestamp", "max_timestamp")


@api(38, 1, 3)
def create_delegation_token(request: Request, broker: Broker) -> Any:
    body = request.entity
    principal = request.connection.principal
    requester_type, _, requester_name = principal.partition(":")
    owner_type, owner_name = requester_type, requester_name
    if body.owner_principal_name:
        owner_type = body.owner_principal_type or ""
        owner_name = body.owner_principal_name
    code = _error_code(request, broker)
    if code is ErrorCode.delegation_token_auth_disabled:
        owner = f"{owner_type}:{owner_name}"
        if owner != principal and not request.may(Operation.CREATE_TOKENS, ResourceType.USER, owner):
            code = ErrorCode.delegation_token_authorization_failed
        elif any(renewer.principal_type != "User" for renewer in body.renewers):
            code = ErrorCode.invalid_principal_type
    return build_response(
        request, error_code=code, principal_type=owner_type, principal_name=owner_name,
        token_requester_principal_type=requester_type, token_requester_principal_name=requester_name,
        **dict.fromkeys(_TIMES, _absent_time(code)),
    )  # fmt: skip


@api(39, 1, 2)
@api(40, 1, 2)
def renew_or_expire_delegation_token(request: Request, broker: Broker) -> Any:
    code = _error_code(request, broker)
    return build_response(request, error_code=code, expiry_timestamp=_absent_time(code))


@api(41, 1, 3)
def describe_delegation_token(request: Request, broker: Broker) -> Any:
    return build_response(request, error_code=_error_code(request, broker))


def _error_code(request: Request, broker: Broker) -> ErrorCode:
    """Return the error of all requests about tokens, which depends on whether the client has authenticated."""
    protocol = broker.config.listener_security[request.connection.listener].protocol
    if protocol == "PLAINTEXT" or (protocol == "SSL" and request.connection.principal == ANONYMOUS):
        return ErrorCode.delegation_token_request_not_allowed
    return ErrorCode.delegation_token_auth_disabled


def _absent_time(code: ErrorCode) -> int:
    """Return the timestamp in a response without a token: 0 if Kafka's controller makes it, -1 if a broker does."""
    return 0 if code is ErrorCode.delegation_token_auth_disabled else -1
