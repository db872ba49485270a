"""16 ListGroups, versions 0 to 5: the groups that this broker coordinates.

v4  filter by state, state in the answer (KIP-518)
v5  filter by type, type in the answer (KIP-848)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.groups.classic.messages import ListedGroup
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, response_module
from kafkalog_broker.runtime.turn import Turn
from kafkalog_broker.share.membership.share_group_coordinator import Listed


@api(16, 0, 5)
async def handle(request: Request, broker: Broker) -> Any:
    asked = request.entity
    states, types = getattr(asked, "states_filter", ()), getattr(asked, "types_filter", ())
    groups: list[ListedGroup | Listed] = [*broker.groups.list_groups(states, types)]
    groups += broker.share_groups.list_groups(states, types)
    if request.access is not None:
        groups = [group async for group in Turn().spread(groups) if not request.refused(group.group_id, quiet=True)]
    return _answer(request, ErrorCode.none, groups)


@on_error(16)
def failed(request: Request, code: ErrorCode) -> Any:
    return _answer(request, code, [])


def _answer(request: Request, code: ErrorCode, groups: Sequence[ListedGroup | Listed]) -> Any:
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
