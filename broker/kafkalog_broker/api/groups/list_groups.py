"""16 ListGroups, versions 0 to 5: the groups of all types that the sender may describe.

v4  filter by state, state in the response (KIP-518)
v5  filter by type, type in the response (KIP-848)
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response


@api(16, 0, 5)
def list_groups(request: Request, broker: Broker) -> Any:
    states, types = request.entity.states_filter, request.entity.types_filter
    groups = [
        group._asdict()
        for group in broker.groups.list_groups(states, types)
        if request.access is None or not request.authorization_error(group.group_id, quiet=True)
    ]
    return build_response(request, groups=groups)
