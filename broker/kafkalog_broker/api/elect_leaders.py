"""43 ElectLeaders, versions 0 to 2: the one replica that a partition has is its leader already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kafkalog_broker.admin.responses import per_partition
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import entity, respond, response_module

PREFERRED, UNCLEAN = 0, 1  # election types
Outcome = tuple[ErrorCode, str | None]


class _Topic(NamedTuple):
    """In the place of a request's, where all topics are asked for."""

    topic: str
    partitions: Sequence[int] = ()


@api(43, 0, 2)
async def handle(request: Request, broker: Broker) -> Any:
    asked, module = request.entity, response_module(request)
    kind = getattr(asked, "election_type", PREFERRED)
    known = kind in (PREFERRED, UNCLEAN)
    topics = asked.topic_partitions
    if topics is None:
        # All partitions: those that need no election are left out, which are all.
        topics = [_Topic(topic.name) for topic in broker.topics] if known else []

    def of_partition(topic: Any, index: int) -> Any:
        code, what = _outcome(broker, topic.topic, index, kind)
        return entity(module.PartitionResult, partition_id=index, error_code=code, error_message=what)

    def of_topic(topic: Any, partitions: Any) -> Any:
        return entity(module.ReplicaElectionResult, topic=topic.topic, partition_result=partitions)

    return respond(
        request,
        error_code=ErrorCode.none if known else ErrorCode.invalid_request,
        replica_election_results=await per_partition(topics, of_partition, of_topic),
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
