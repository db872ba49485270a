"""A request before its handler, where there is an authorizer: what it needs as a whole is looked at here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Api, Request
from kafkalog_broker.security.api_rights import RIGHTS
from kafkalog_broker.security.authorizer import Authorizer


def admit(request: Request, authorizer: Authorizer) -> None:
    """Raises BrokerError where a right to the whole is missing. The handler asks `request.access` about each thing that
    is named."""
    access = request.access = authorizer.access(request)
    if request.entity is None:  # ApiVersions of a version that nobody knows
        return
    for right in RIGHTS[request.api_key].of(request):
        code = access.refusal(right, right.name_in(request.entity))
        if code is not ErrorCode.none:
            raise BrokerError(code)


def guarded(authorizer: Authorizer, api: Api) -> Api:
    """The same API, for those who may."""
    handle = api.handler

    def handle_admitted(request: Request, broker: Any) -> Any:
        admit(request, authorizer)
        return handle(request, broker)

    return replace(api, handler=handle_admitted)
