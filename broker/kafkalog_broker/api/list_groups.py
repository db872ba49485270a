"""16 ListGroups, versions 0 to 5: the groups that this broker coordinates.

v4  filter by state, state in the answer (KIP-518)
v5  filter by type, type in the answer (KIP-848); all groups here are classic
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.groups.messages import ListedGroup
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, response_module


@api(16, 0, 5)
async def handle(request: Request, broker: Broker) -> Any:
    asked = request.entity
    groups = broker.groups.list_groups(getattr(asked, "states_filter", ()), getattr(asked, "types_filter", ()))
    return _answer(request, ErrorCode.none, groups)


@on_error(16)
def failed(request: Request, code: ErrorCode) -> Any:
    return _answer(request, code, [])


def _answer(request: Request, code: ErrorCode, groups: list[ListedGroup]) -> Any:
    module = response_module(request)
    listed = tuple(
        entity(
            module.ListedGroup,
            group_id=group.group_id,
            protocol_type=group.protocol_type,
            group_state=group.state,
            group_type=group.type,
        )
        for group in groups
    )
    return entity(module.ListGroupsResponse, error_code=code, groups=listed)
