"""Access control lists, versions 1 to 3 (v3: resources of type USER, KIP-373).

29 DescribeAcls: the ACLs that match a filter, by resource pattern.
30 CreateAcls: saved before the response. Creating an existing ACL is not an error.
31 DeleteAcls: deletes the ACLs that match filters; the response lists them for each filter.

A request with a zero resource type, pattern type, operation or permission closes the connection, as in Kafka. A code
that is too large counts as UNKNOWN and gets a response.
"""

from __future__ import annotations

import logging
from typing import Any

from kafkalog_broker.api.error_responses import NO_AUTHORIZER_MESSAGE, denial_message
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import api, on_error
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response
from kafkalog_broker.runtime.fair_scheduling import TimeSlice, run_in_slices
from kafkalog_broker.security.acl import Acl, Pattern, acl_of, check_deletion, filter_of
from kafkalog_broker.security.authorizer import Authorizer

_DESCRIBE_ACLS, _CREATE_ACLS, _DELETE_ACLS = 29, 30, 31
_MAX_CREATIONS = 10_000  # as in Kafka (QuorumController.MAX_RECORDS_PER_USER_OP)
_NO_AUTHORIZER_TO_DESCRIBE = "No Authorizer is configured on the broker"

_logger = logging.getLogger(__name__)


@api(_DESCRIBE_ACLS, 1, 3)
async def describe_acls(request: Request, broker: Broker) -> Any:
    _reject_zero_codes(request)
    acl_filter = filter_of(request.entity)
    time_slice = TimeSlice()
    matches: dict[Pattern, list[dict[str, Any]]] = {}
    async for acl in time_slice.spread(list(_authorizer(broker).acls)):
        if acl_filter.matches(acl):
            matches.setdefault(acl.pattern, []).append(_entry_fields(acl))
    resources = [
        {**_pattern_fields(pattern), "acls": acls} async for pattern, acls in time_slice.spread(matches.items())
    ]
    # Kafka leaves the message at the protocol's default, an empty string, here and in the results of CreateAcls.
    return build_response(request, error_message="", resources=resources)


@api(_CREATE_ACLS, 1, 3)
async def create_acls(request: Request, broker: Broker) -> Any:
    creations = request.entity.creations
    if len(creations) > _MAX_CREATIONS:
        raise BrokerError(
            ErrorCode.policy_violation, f"more than {_MAX_CREATIONS} ACLs in one request: send them in several"
        )
    _reject_zero_codes(request)
    acls = _authorizer(broker).acls
    time_slice = TimeSlice()
    results: list[dict[str, Any]] = []
    valid: list[Acl] = []
    for creation in creations:
        try:
            valid.append(acl_of(creation))
            results.append({"error_message": ""})
        except BrokerError as error:
            if error.code is ErrorCode.unknown_server_error:
                raise
            results.append({"error_code": error.code, "error_message": error.what})
    async with broker.alteration_lock:
        created = [acl for acl in dict.fromkeys(valid) if acl not in acls]
        if created:
            await broker.save("the ACLs", acls.save, [*acls, *created])
            await run_in_slices(acls.change_stepwise((), created), time_slice)
            principal = request.connection.principal
            _logger.info("%s created %d ACLs, first: %s", principal, len(created), created[0])
    return build_response(request, results=results)


@api(_DELETE_ACLS, 1, 3)
async def delete_acls(request: Request, broker: Broker) -> Any:
    _reject_zero_codes(request)
    acls = _authorizer(broker).acls
    time_slice = TimeSlice()
    results: list[dict[str, Any]] = []
    deleted: dict[Acl, None] = {}
    async with broker.alteration_lock:
        async for filter_struct in time_slice.spread(request.entity.filters):
            try:
                acl_filter = filter_of(filter_struct)
                check_deletion(acl_filter)
            except BrokerError as error:
                results.append({"error_code": error.code, "error_message": error.what})
                continue
            matching = [acl async for acl in time_slice.spread(list(acls)) if acl_filter.matches(acl)]
            deleted.update(dict.fromkeys(matching))
            results.append({"matching_acls": [_pattern_fields(acl.pattern) | _entry_fields(acl) for acl in matching]})
        if deleted:
            await broker.save("the ACLs", acls.save, [acl for acl in acls if acl not in deleted])
            await run_in_slices(acls.change_stepwise(deleted, ()), time_slice)
            principal = request.connection.principal
            _logger.info("%s deleted %d ACLs, first: %s", principal, len(deleted), next(iter(deleted)))
    return build_response(request, filter_results=results)


@on_error(_DESCRIBE_ACLS)
def describe_acls_error(request: Request, code: ErrorCode) -> Any:
    if _has_zero_code(request):
        return None
    is_disabled = code is ErrorCode.security_disabled
    message = _NO_AUTHORIZER_TO_DESCRIBE if is_disabled else denial_message(request, code)
    return build_response(request, error_code=code, error_message=message)


@on_error(_CREATE_ACLS)
def create_acls_error(request: Request, code: ErrorCode) -> Any:
    if _has_zero_code(request):
        return None
    error = {"error_code": code, "error_message": denial_message(request, code)}
    return build_response(request, results=[error] * len(request.entity.creations))


@on_error(_DELETE_ACLS)
def delete_acls_error(request: Request, code: ErrorCode) -> Any:
    if _has_zero_code(request):
        return None
    error = {"error_code": code, "error_message": denial_message(request, code)}
    return build_response(request, filter_results=[error] * len(request.entity.filters))


def _authorizer(broker: Broker) -> Authorizer:
    """Return the authorizer. Raises BrokerError (SECURITY_DISABLED) if the broker has none and allows everything."""
    if broker.authorizer is None:
        raise BrokerError(ErrorCode.security_disabled, NO_AUTHORIZER_MESSAGE)
    return broker.authorizer


def _reject_zero_codes(request: Request) -> None:
    """Raise a BrokerError for a zero code. It closes the connection, because the error handlers return no response."""
    if _has_zero_code(request):
        raise BrokerError(ErrorCode.invalid_request, "a type, operation or permission is 0")


def _has_zero_code(request: Request) -> bool:
    body = request.entity
    if request.api_key == _DESCRIBE_ACLS:
        return _filter_has_zero_code(body)
    if request.api_key == _DELETE_ACLS:
        return any(map(_filter_has_zero_code, body.filters))
    if len(body.creations) > _MAX_CREATIONS:
        return False  # refused with a response, whatever the codes are
    return any(
        not (acl.resource_type and acl.resource_pattern_type and acl.operation and acl.permission_type)
        for acl in body.creations
    )


def _filter_has_zero_code(acl: Any) -> bool:
    return not (acl.resource_type_filter and acl.pattern_type_filter and acl.operation and acl.permission_type)


def _pattern_fields(pattern: Pattern) -> dict[str, Any]:
    return {"resource_type": pattern.resource, "resource_name": pattern.name, "pattern_type": pattern.type}


def _entry_fields(acl: Acl) -> dict[str, Any]:
    return {
        "principal": acl.principal, "host": acl.host, "operation": acl.operation, "permission_type": acl.permission,
    }  # fmt: skip
