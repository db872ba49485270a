"""31 DeleteAcls, versions 1 to 3: those that match filters, each of which is answered with what it matched.

v2  flexible; v3  the resource USER (KIP-373)
"""

from __future__ import annotations

import logging
from typing import Any

from kafkalog_broker.admin.responses import authorizer_of, needs_text
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, response_module
from kafkalog_broker.runtime.turn import Turn, in_turns
from kafkalog_broker.security.acl import Acl, check_deletion, filter_of, has_zero

_logger = logging.getLogger(__name__)
Outcome = tuple[ErrorCode, str | None, list[Acl]]


@api(31, 1, 3)
async def handle(request: Request, broker: Broker) -> Any:
    if _is_malformed(request):
        raise BrokerError(ErrorCode.invalid_request, "a filter has a type, operation or permission of 0")
    acls, turn = authorizer_of(broker).acls, Turn()
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
            try:
                await broker.run_blocking(acls.save, [acl for acl in acls if acl not in gone])
            except OSError as error:
                raise BrokerError(ErrorCode.kafka_storage_error, f"the ACLs could not be written: {error}") from None
            await in_turns(acls.changing(gone, ()), turn)
            _logger.info(
                "%d ACLs are deleted by %s, first %s", len(gone), request.connection.principal, next(iter(gone))
            )
    return _answer(request, outcomes)


@on_error(31)
def failed(request: Request, code: ErrorCode) -> Any:
    if _is_malformed(request):
        return None
    return _answer(request, [(code, needs_text(request, code), [])] * len(request.entity.filters))


def _is_malformed(request: Request) -> bool:
    return any(
        has_zero(one.resource_type_filter, one.pattern_type_filter, one.operation, one.permission_type)
        for one in request.entity.filters
    )


def _answer(request: Request, outcomes: list[Outcome]) -> Any:
    module = response_module(request)
    results = []
    for code, what, acls in outcomes:
        matching = tuple(
            entity(
                module.DeleteAclsMatchingAcl,
                error_code=ErrorCode.none, error_message=None, resource_type=acl.pattern.resource,
                resource_name=acl.pattern.name, pattern_type=acl.pattern.type, principal=acl.principal, host=acl.host,
                operation=acl.operation, permission_type=acl.permission,
            )
            for acl in acls
        )  # fmt: skip
        results.append(
            entity(module.DeleteAclsFilterResult, error_code=code, error_message=what, matching_acls=matching)
        )
    return entity(module.DeleteAclsResponse, filter_results=tuple(results))
