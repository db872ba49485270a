"""Access control lists, versions 1 to 3 (v3: the resource USER, KIP-373).

29 DescribeAcls: the ACLs that match a filter, by resource pattern.
30 CreateAcls: on disk before it is answered. One that is there already is no error.
31 DeleteAcls: the ACLs that match filters, each of which is answered with its matches."""

from __future__ import annotations

import logging
from operator import attrgetter
from typing import Any

from kafkalog_broker.admin.responses import authorizer_of, needs_text
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import api, on_error
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import respond
from kafkalog_broker.runtime.fair_scheduling import TimeSlice, run_in_slices
from kafkalog_broker.security.acl import Acl, Pattern, acl_of, check_deletion, filter_of

NO_AUTHORIZER = "No Authorizer is configured on the broker"
MAX_CREATIONS = 10_000  # in one step, as in Kafka (QuorumController.MAX_RECORDS_PER_USER_OP)
_logger = logging.getLogger(__name__)


@api(29, 1, 3)
async def describe_acls(request: Request, broker: Broker) -> Any:
    _check_form(request)
    wanted, turn = filter_of(request.entity), TimeSlice()
    found: dict[Pattern, list[dict[str, Any]]] = {}
    async for acl in turn.spread(list(authorizer_of(broker).acls)):
        if wanted.matches(acl):
            found.setdefault(acl.pattern, []).append(_entry(acl))
    resources = [{**_resource(pattern), "acls": acls} async for pattern, acls in turn.spread(found.items())]
    return respond(request, error_message="", resources=resources)  # "": as Kafka, the protocol's default


def _resource(pattern: Pattern) -> dict[str, Any]:
    return {"resource_type": pattern.resource, "resource_name": pattern.name, "pattern_type": pattern.type}


def _entry(acl: Acl) -> dict[str, Any]:
    return {
        "principal": acl.principal, "host": acl.host, "operation": acl.operation, "permission_type": acl.permission,
    }  # fmt: skip


@on_error(29)
@on_error(30)
@on_error(31)
def acls_failed(request: Request, code: ErrorCode) -> Any:
    """None for a malformed request, which ends the connection as in Kafka."""
    if _is_malformed(request):
        return None
    refused = {"error_code": code, "error_message": needs_text(request, code)}
    if request.api_key == 30:
        return respond(request, results=[refused] * len(request.entity.creations))
    if request.api_key == 31:
        return respond(request, filter_results=[refused] * len(request.entity.filters))
    return respond(
        request, **refused | ({"error_message": NO_AUTHORIZER} if code is ErrorCode.security_disabled else {})
    )


def _check_form(request: Request) -> None:
    if _is_malformed(request):
        raise BrokerError(ErrorCode.invalid_request, "a type, operation or permission is 0")


_FIELDS_OF_ACL = attrgetter("resource_type", "resource_pattern_type", "operation", "permission_type")
_FIELDS_OF_FILTER = attrgetter("resource_type_filter", "pattern_type_filter", "operation", "permission_type")


def _is_malformed(request: Request) -> bool:
    """True if a type, operation or permission is 0 in an ACL, or in a filter: Kafka then closes the connection. (Larger
    ones than there are, it takes for UNKNOWN and answers.)"""
    asked = request.entity
    if request.api_key == 30:
        if len(asked.creations) > MAX_CREATIONS:
            return False
        return not all(all(_FIELDS_OF_ACL(creation)) for creation in asked.creations)
    filters = asked.filters if request.api_key == 31 else [asked]
    return not all(all(_FIELDS_OF_FILTER(one)) for one in filters)


@api(30, 1, 3)
async def create_acls(request: Request, broker: Broker) -> Any:
    if len(request.entity.creations) > MAX_CREATIONS:
        raise BrokerError(
            ErrorCode.policy_violation, f"more than {MAX_CREATIONS} ACLs in one request: send them in several"
        )
    _check_form(request)
    acls, turn = authorizer_of(broker).acls, TimeSlice()
    results: list[dict[str, Any]] = []
    wanted: list[Acl] = []
    for asked in request.entity.creations:
        try:
            wanted.append(acl_of(asked))
            results.append({"error_message": ""})  # as Kafka: the protocol's default, not null
        except BrokerError as error:
            if error.code is ErrorCode.unknown_server_error:
                raise
            results.append({"error_code": error.code, "error_message": error.what})
    async with broker.altering:
        new = [acl for acl in dict.fromkeys(wanted) if acl not in acls]
        if new:
            await broker.save("the ACLs", acls.save, [*acls, *new])
            await run_in_slices(acls.changing((), new), turn)
            _logger.info("%d ACLs are created by %s, first %s", len(new), request.connection.principal, new[0])
    return respond(request, results=results)


@api(31, 1, 3)
async def delete_acls(request: Request, broker: Broker) -> Any:
    _check_form(request)
    acls, turn = authorizer_of(broker).acls, TimeSlice()
    results: list[dict[str, Any]] = []
    gone: dict[Acl, None] = {}
    async with broker.altering:
        async for asked in turn.spread(request.entity.filters):
            try:
                wanted = filter_of(asked)
                check_deletion(wanted)
            except BrokerError as error:
                results.append({"error_code": error.code, "error_message": error.what})
                continue
            matching = [acl async for acl in turn.spread(list(acls)) if wanted.matches(acl)]
            gone.update(dict.fromkeys(matching))
            results.append({"matching_acls": [_resource(acl.pattern) | _entry(acl) for acl in matching]})
        if gone:
            await broker.save("the ACLs", acls.save, [acl for acl in acls if acl not in gone])
            await run_in_slices(acls.changing(gone, ()), turn)
            first, who = next(iter(gone)), request.connection.principal
            _logger.info("%d ACLs are deleted by %s, first %s", len(gone), who, first)
    return respond(request, filter_results=results)
