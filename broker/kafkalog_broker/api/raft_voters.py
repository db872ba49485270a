"""80 AddRaftVoter, versions 0 and 1, and 81 RemoveRaftVoter, version 0: refused as by a Kafka whose voters are in its
configuration (kraft.version 0)."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import error_response

_WHY = "Cluster doesn't support {} voter because the kraft.version feature is 0"


@api(80, 0, 1)
async def add_raft_voter(request: Request, broker: Broker) -> Any:
    return error_response(request, ErrorCode.unsupported_version, _WHY.format("adding"))


@api(81, 0, 0)
async def remove_raft_voter(request: Request, broker: Broker) -> Any:
    return error_response(request, ErrorCode.unsupported_version, _WHY.format("removing"))
