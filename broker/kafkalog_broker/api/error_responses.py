"""Responses to requests that fail as a whole, and error codes that depend on the version of a request."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.acls import DENIAL_MESSAGES, ResourceType
from kafkalog_broker.protocol.error_response import error_response
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.security.api_rights import RIGHTS

INVALID_REQUEST_MESSAGE = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)
"""Kafka's message for INVALID_REQUEST without a message of its own."""
NO_AUTHORIZER_MESSAGE = "No Authorizer is configured."

_FIRST_VERSION_WITH_PRODUCER_FENCED = {22: 4, 24: 2, 25: 2, 26: 2}
"""By API key: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn."""

_QUORUM_APIS = frozenset((55, 80, 81))
"""DescribeQuorum, AddRaftVoter, RemoveRaftVoter. Kafka's message for them does not name the missing right."""

_SHARE_STATE_APIS = frozenset((83, 84, 85, 86, 87))
"""APIs between share coordinators. Kafka sends no message with their errors."""


def default_error_response(request: Request, code: ErrorCode) -> Any:
    """Return the response to a request that failed as a whole, for APIs without an `on_error` function of their own."""
    code = code_for_version(request, code)
    if request.api_key in _SHARE_STATE_APIS:
        return error_response(request, code)
    if request.api_key in _QUORUM_APIS:
        return error_response(request, code, DENIAL_MESSAGES.get(code))
    return error_response(request, code, denial_message(request, code))


def code_for_version(request: Request, code: ErrorCode) -> ErrorCode:
    """Return `code`, or INVALID_PRODUCER_EPOCH for clients that do not know PRODUCER_FENCED yet (KIP-588)."""
    first_version = _FIRST_VERSION_WITH_PRODUCER_FENCED.get(request.api_key, 0)
    if code is ErrorCode.producer_fenced and request.version < first_version:
        return ErrorCode.invalid_producer_epoch
    return code


def denial_message(request: Request, code: ErrorCode) -> str | None:
    """Return the message for a request that was denied as a whole, or None for other errors.

    It names the missing right on the cluster. Kafka's message also contains the toString of an internal object.
    """
    if code is ErrorCode.cluster_authorization_failed:
        for right in RIGHTS[request.api_key].of_request(request):
            if right.resource is ResourceType.CLUSTER:
                return f"The request needs {right.operation.name} permission."
    return NO_AUTHORIZER_MESSAGE if code is ErrorCode.security_disabled else None
