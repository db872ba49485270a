"""42 DeleteGroups, versions 0 to 2: deletes groups without members, with their committed offsets (KIP-229)."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.admin.share_group_state import delete_share_group
from kafkalog_broker.api.itemized_responses import respond_in_slices
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.runtime.fair_scheduling import TimeSlice


@api(42, 0, 2)
async def delete_groups(request: Request, broker: Broker) -> Any:
    codes: dict[str, ErrorCode] = {}
    async for group_id in TimeSlice().spread(dict.fromkeys(request.entity.groups_names)):
        codes[group_id] = request.authorization_error(group_id) or await _delete(broker, group_id)
    results = ({"group_id": group_id, "error_code": code} for group_id, code in codes.items())
    return await respond_in_slices(request, "results", results)


async def _delete(broker: Broker, group_id: str) -> ErrorCode:
    try:
        if group_id in broker.groups.share_groups(group_id).groups:
            await delete_share_group(broker, group_id)
        else:
            broker.groups.shard(group_id).delete(group_id)
    except BrokerError as error:
        return error.code
    return ErrorCode.none
