"""29 DescribeAcls, versions 1 to 3: those that match a filter, by what they are about.

v2  flexible; v3  the resource USER (KIP-373)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafkalog_broker.admin.responses import authorizer_of, needs_text
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, response_module
from kafkalog_broker.runtime.turn import Turn
from kafkalog_broker.security.acl import Acl, Pattern, filter_of, has_zero


@api(29, 1, 3)
async def handle(request: Request, broker: Broker) -> Any:
    if _is_malformed(request):
        raise BrokerError(ErrorCode.invalid_request, "a filter has a type, operation or permission of 0")
    wanted, turn = filter_of(request.entity), Turn()
    found: dict[Pattern, list[Acl]] = {}
    async for acl in turn.spread(list(authorizer_of(broker).acls)):
        if wanted.matches(acl):
            found.setdefault(acl.pattern, []).append(acl)
    module = response_module(request)
    resources = []
    async for pattern, acls in turn.spread(found.items()):
        described = tuple(
            entity(
                module.AclDescription,
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission,
            )
            for acl in acls
        )  # fmt: skip
        resources.append(
            entity(
                module.DescribeAclsResource,
                resource_type=pattern.resource, resource_name=pattern.name, pattern_type=pattern.type, acls=described,
            )
        )  # fmt: skip
    return _answer(request, ErrorCode.none, "", resources)  # "": as Kafka, the protocol's default


@on_error(29)
def failed(request: Request, code: ErrorCode) -> Any:
    if _is_malformed(request):
        return None
    text = NO_AUTHORIZER if code is ErrorCode.security_disabled else needs_text(request, code)
    return _answer(request, code, text, ())


NO_AUTHORIZER = "No Authorizer is configured on the broker"


def _is_malformed(request: Request) -> bool:
    asked = request.entity
    return has_zero(asked.resource_type_filter, asked.pattern_type_filter, asked.operation, asked.permission_type)


def _answer(request: Request, code: ErrorCode, what: str | None, resources: Sequence[Any]) -> Any:
    response = response_module(request).DescribeAclsResponse
    return entity(response, error_code=code, error_message=what, resources=resources)
