"""42 DeleteGroups, versions 0 to 2: forget groups without members, and all they have committed (KIP-229)."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.admin import share_groups
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, response_module


@api(42, 0, 2)
async def handle(request: Request, broker: Broker) -> Any:
    named = _named(request)
    return _answer(request, {name: request.refused(name) or await _delete(broker, name) for name in named})


async def _delete(broker: Broker, group_id: str) -> ErrorCode:
    if not broker.share_groups.has(group_id):
        return broker.groups.delete(group_id)
    try:
        await share_groups.delete_group(broker, group_id)
    except BrokerError as error:
        return error.code
    return ErrorCode.none


@on_error(42)
def failed(request: Request, code: ErrorCode) -> Any:
    return _answer(request, dict.fromkeys(_named(request), code))


def _named(request: Request) -> list[str]:
    return list(dict.fromkeys(request.entity.groups_names))  # each once


def _answer(request: Request, codes: dict[str, ErrorCode]) -> Any:
    module = response_module(request)
    results = tuple(
        entity(module.DeletableGroupResult, group_id=group_id, error_code=code) for group_id, code in codes.items()
    )
    return entity(module.DeleteGroupsResponse, results=results)
