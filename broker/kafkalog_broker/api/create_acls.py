"""30 CreateAcls, versions 1 to 3: on disk before it is answered. One that is there already is no error.

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
from kafkalog_broker.security.acl import Acl, acl_of, has_zero

_logger = logging.getLogger(__name__)
MAX_CREATIONS = 10_000
"""As in Kafka, which changes no more in one step (QuorumController.MAX_RECORDS_PER_USER_OP)."""


@api(30, 1, 3)
async def handle(request: Request, broker: Broker) -> Any:
    _check(request)
    acls, turn = authorizer_of(broker).acls, Turn()
    outcomes: list[tuple[ErrorCode, str | None]] = []
    wanted: list[Acl] = []
    async for asked in turn.spread(request.entity.creations):
        try:
            wanted.append(acl_of(asked))
            outcomes.append((ErrorCode.none, ""))  # as Kafka: the protocol's default, not null
        except BrokerError as error:
            if error.code is ErrorCode.unknown_server_error:
                raise
            outcomes.append((error.code, error.what))
    async with broker.changes.altering:
        new = [acl async for acl in turn.spread(dict.fromkeys(wanted)) if acl not in acls]
        if new:
            try:
                await broker.run_blocking(acls.save, [*acls, *new])
            except OSError as error:
                raise BrokerError(ErrorCode.kafka_storage_error, f"the ACLs could not be written: {error}") from None
            await in_turns(acls.changing((), new), turn)
            _logger.info("%d ACLs are created by %s, first %s", len(new), request.connection.principal, new[0])
    return _answer(request, outcomes)


@on_error(30)
def failed(request: Request, code: ErrorCode) -> Any:
    if _is_malformed(request):
        return None
    module, count = response_module(request), len(request.entity.creations)
    result = entity(module.AclCreationResult, error_code=code, error_message=needs_text(request, code))
    return entity(module.CreateAclsResponse, results=(result,) * count)


def _check(request: Request) -> None:
    if len(request.entity.creations) > MAX_CREATIONS:
        raise BrokerError(
            ErrorCode.policy_violation, f"more than {MAX_CREATIONS} ACLs in one request: send them in several"
        )
    if _is_malformed(request):
        raise BrokerError(ErrorCode.invalid_request, "an ACL has a type, operation or permission of 0")


def _is_malformed(request: Request) -> bool:
    return len(request.entity.creations) <= MAX_CREATIONS and any(
        has_zero(one.resource_type, one.resource_pattern_type, one.operation, one.permission_type)
        for one in request.entity.creations
    )


def _answer(request: Request, outcomes: list[tuple[ErrorCode, str | None]]) -> Any:
    module = response_module(request)
    results = tuple(entity(module.AclCreationResult, error_code=code, error_message=what) for code, what in outcomes)
    return entity(module.CreateAclsResponse, results=results)
