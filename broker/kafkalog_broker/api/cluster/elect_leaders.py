"""43 ElectLeaders, versions 0 to 2: never needed, because the one replica of a partition is already its leader."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.api.itemized_responses import respond_by_partition
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response

_PREFERRED, _UNCLEAN = 0, 1  # election types


@api(43, 0, 2)
async def elect_leaders(request: Request, broker: Broker) -> Any:
    topics, election_type = request.entity.topic_partitions, request.entity.election_type
    is_valid = election_type in (_PREFERRED, _UNCLEAN)
    code = ErrorCode.none if is_valid else ErrorCode.invalid_request
    if topics is None:
        # Null means all partitions. The response leaves out those that need no election, and none does.
        results = [{"topic": topic.name} for topic in broker.topics] if is_valid else []
        return build_response(request, error_code=code, replica_election_results=results)

    def result(topic: Any, index: int) -> dict[str, Any]:
        name = topic.topic
        partition_code = ErrorCode.unknown_topic_or_partition
        if not is_valid:
            partition_code, message = ErrorCode.invalid_request, f"Unknown election type {election_type}"
        elif (existing_topic := broker.topics.get(name)) is None:
            message = f"No such topic as {name}"
        elif not 0 <= index < existing_topic.partitions:
            message = f"No such partition as {name}-{index}"
        else:
            partition_code = ErrorCode.election_not_needed
            message = "Leader election not needed for topic partition."
        return {"error_code": partition_code, "error_message": message}

    return await respond_by_partition(request, result, error_code=code)
