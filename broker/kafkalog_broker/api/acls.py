"""Access control lists.

29 DescribeAcls, versions 1 to 3: the ACLs that match a filter, by resource pattern.

30 CreateAcls, versions 1 to 3: on disk before it is answered. One that is there already is no error.

31 DeleteAcls, versions 1 to 3: the ACLs that match filters, each of which is answered with its matches.

v2  flexible; v3  the resource USER (KIP-373)"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from kafkalog_broker.admin.responses import authorizer_of, needs_text
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import error_response, respond
from kafkalog_broker.runtime.fair_scheduling import TimeSlice, run_in_slices
from kafkalog_broker.security.acl import Acl, Pattern, acl_of, check_deletion, filter_of


@api(29, 1, 3)
async def describe_acls(request: Request, broker: Broker) -> Any:
    if _is_malformed(request):
        raise BrokerError(ErrorCode.invalid_request, "a filter has a type, operation or permission of 0")
    wanted, turn = filter_of(request.entity), TimeSlice()
    found: dict[Pattern, list[Acl]] = {}
    async for acl in turn.spread(list(authorizer_of(broker).acls)):
        if wanted.matches(acl):
            found.setdefault(acl.pattern, []).append(acl)
    resources = []
    async for pattern, acls in turn.spread(found.items()):
        described = [
            {"principal": acl.principal, "host": acl.host, "operation": acl.operation,
             "permission_type": acl.permission}
            for acl in acls
        ]  # fmt: skip
        resources.append(
            {"resource_type": pattern.resource, "resource_name": pattern.name, "pattern_type": pattern.type,
             "acls": described}
        )  # fmt: skip
    return respond(request, error_message="", resources=resources)  # "": as Kafka, the protocol's default


@on_error(29)
@on_error(30)
@on_error(31)
def acls_failed(request: Request, code: ErrorCode) -> Any:
    """None for a malformed request, which ends the connection as in Kafka."""
    if _is_malformed(request):
        return None
    if request.api_key == 29:
        text = NO_AUTHORIZER if code is ErrorCode.security_disabled else needs_text(request, code)
        return error_response(request, code, text)
    if request.api_key == 30:
        return _created(request, [(code, needs_text(request, code))] * len(request.entity.creations))
    return _deleted(request, [(code, needs_text(request, code), [])] * len(request.entity.filters))


NO_AUTHORIZER = "No Authorizer is configured on the broker"


def _is_malformed(request: Request) -> bool:
    """True if a type, operation or permission is 0 in an ACL, or in a filter: Kafka then closes the connection. (Larger
    ones than there are, it takes for UNKNOWN and answers.)"""
    asked, suffix = request.entity, "_filter"
    named: Sequence[Any] = [asked]
    if request.api_key == 30:
        named, suffix = asked.creations if len(asked.creations) <= MAX_CREATIONS else (), ""
    elif request.api_key == 31:
        named = asked.filters
    pattern_type = "pattern_type_filter" if suffix else "resource_pattern_type"
    fields = attrgetter(f"resource_type{suffix}", pattern_type, "operation", "permission_type")
    return not all(all(fields(one)) for one in named)


_logger = logging.getLogger(__name__)
MAX_CREATIONS = 10_000
"""As in Kafka, which changes no more in one step (QuorumController.MAX_RECORDS_PER_USER_OP)."""


@api(30, 1, 3)
async def create_acls(request: Request, broker: Broker) -> Any:
    if len(request.entity.creations) > MAX_CREATIONS:
        raise BrokerError(
            ErrorCode.policy_violation, f"more than {MAX_CREATIONS} ACLs in one request: send them in several"
        )
    if _is_malformed(request):
        raise BrokerError(ErrorCode.invalid_request, "an ACL has a type, operation or permission of 0")
    acls, turn = authorizer_of(broker).acls, TimeSlice()
    outcomes: list[tuple[ErrorCode, str | None]] = []
    wanted: list[Acl] = []
    for asked in request.entity.creations:
        try:
            wanted.append(acl_of(asked))
            outcomes.append((ErrorCode.none, ""))  # as Kafka: the protocol's default, not null
        except BrokerError as error:
            if error.code is ErrorCode.unknown_server_error:
                raise
            outcomes.append((error.code, error.what))
    async with broker.changes.altering:
        new = [acl for acl in dict.fromkeys(wanted) if acl not in acls]
        if new:
            await broker.save("the ACLs", acls.save, [*acls, *new])
            await run_in_slices(acls.changing((), new), turn)
            _logger.info("%d ACLs are created by %s, first %s", len(new), request.connection.principal, new[0])
    return _created(request, outcomes)


def _created(request: Request, outcomes: list[tuple[ErrorCode, str | None]]) -> Any:
    return respond(request, results=[{"error_code": code, "error_message": what} for code, what in outcomes])


Outcome = tuple[ErrorCode, str | None, list[Acl]]


@api(31, 1, 3)
async def delete_acls(request: Request, broker: Broker) -> Any:
    if _is_malformed(request):
        raise BrokerError(ErrorCode.invalid_request, "a filter has a type, operation or permission of 0")
    acls, turn = authorizer_of(broker).acls, TimeSlice()
    outcomes: list[Outcome] = []
    gone: dict[Acl, None] = {}
    async with broker.changes.altering:
        async for asked in turn.spread(request.entity.filters):
            try:
                wanted = filter_of(asked)
                check_deletion(wanted)
            except BrokerError as error:
                outcomes.append((error.code, error.what, []))
                continue
            matching = [acl async for acl in turn.spread(list(acls)) if wanted.matches(acl)]
            gone.update(dict.fromkeys(matching))
            outcomes.append((ErrorCode.none, None, matching))
        if gone:
            await broker.save("the ACLs", acls.save, [acl for acl in acls if acl not in gone])
            await run_in_slices(acls.changing(gone, ()), turn)
            _logger.info(
                "%d ACLs are deleted by %s, first %s", len(gone), request.connection.principal, next(iter(gone))
            )
    return _deleted(request, outcomes)


def _deleted(request: Request, outcomes: list[Outcome]) -> Any:
    results = []
    for code, what, acls in outcomes:
        matching = [
            {"resource_type": acl.pattern.resource, "resource_name": acl.pattern.name, "pattern_type": acl.pattern.type,
             "principal": acl.principal, "host": acl.host, "operation": acl.operation,
             "permission_type": acl.permission}
            for acl in acls
        ]  # fmt: skip
        results.append({"error_code": code, "error_message": what, "matching_acls": matching})
    return respond(request, filter_results=results)
