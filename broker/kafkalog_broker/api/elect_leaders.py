"""43 ElectLeaders, versions 0 to 2: the one replica that a partition has is its leader already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import entity, response_module
from kafkalog_broker.turn import Turn

PREFERRED, UNCLEAN = 0, 1  # election types
Outcome = tuple[ErrorCode, str | None]


@api(43, 0, 2)
async def handle(request: Request, broker: Broker) -> Any:
    asked, turn = request.entity, Turn()
    module = response_module(request)
    kind = getattr(asked, "election_type", PREFERRED)
    known = kind in (PREFERRED, UNCLEAN)
    results: list[tuple[str, Sequence[int]]]
    if asked.topic_partitions is None:
        # All partitions: those that need no election are left out, which are all.
        results = [(topic.name, ()) for topic in broker.topics] if known else []
    else:
        results = [(topic.topic, topic.partitions) for topic in asked.topic_partitions]
    return entity(
        module.ElectLeadersResponse,
        error_code=ErrorCode.none if known else ErrorCode.invalid_request,
        replica_election_results=tuple(
            [
                entity(
                    module.ReplicaElectionResult,
                    topic=name,
                    partition_result=tuple(
                        [
                            _result(module, index, _outcome(broker, name, index, kind))
                            async for index in turn.spread(partitions)
                        ]
                    ),
                )
                async for name, partitions in turn.spread(results)
            ]
        ),
    )


def _outcome(broker: Broker, name: str, index: int, kind: int) -> Outcome:
    topic = broker.topics.get(name)
    if kind not in (PREFERRED, UNCLEAN):
        return ErrorCode.invalid_request, f"Unknown election type {kind}"
    if topic is None:
        return ErrorCode.unknown_topic_or_partition, f"No such topic as {name}"
    if not 0 <= index < topic.partitions:
        return ErrorCode.unknown_topic_or_partition, f"No such partition as {name}-{index}"
    return ErrorCode.election_not_needed, "Leader election not needed for topic partition."


def _result(module: Any, index: int, outcome: Outcome) -> Any:
    return entity(module.PartitionResult, partition_id=index, error_code=outcome[0], error_message=outcome[1])
