"""Reassignments of partitions (KIP-455), which stay on the one node there is.

45 AlterPartitionReassignments, versions 0 and 1; 46 ListPartitionReassignments, version 0: none are ever under way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkalog_broker.admin.responses import per_partition
from kafkalog_broker.admin.topic_checks import check_assignment
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import entity, respond, response_module


@api(45, 0, 1)
async def alter_partition_reassignments(request: Request, broker: Broker) -> Any:
    def outcome(topic: Any, partition: Any) -> tuple[ErrorCode, str | None]:
        try:
            _check_reassignment(broker, topic.name, partition.partition_index, partition.replicas)
        except BrokerError as error:
            return error.code, None if error.code is ErrorCode.no_reassignment_in_progress else error.what
        return ErrorCode.none, None

    return await _altered(request, ErrorCode.none, None, outcome)


async def _altered(
    request: Request, code: ErrorCode, what: str | None, outcome: Callable[[Any, Any], tuple[ErrorCode, str | None]]
) -> Any:
    asked, module = request.entity, response_module(request)

    def of_partition(topic: Any, partition: Any) -> Any:
        error, message = outcome(topic, partition)
        index = partition.partition_index
        return entity(
            module.ReassignablePartitionResponse, partition_index=index, error_code=error, error_message=message
        )

    def of_topic(topic: Any, partitions: Any) -> Any:
        return entity(module.ReassignableTopicResponse, name=topic.name, partitions=partitions)

    return respond(
        request,
        allow_replication_factor_change=getattr(asked, "allow_replication_factor_change", True),
        error_code=code,
        error_message=what,
        responses=await per_partition(asked.topics, of_partition, of_topic),
    )


def _check_reassignment(broker: Broker, name: str, index: int, replicas: Any) -> None:
    topic = broker.topics.get(name)
    if topic is None:
        raise BrokerError(ErrorCode.unknown_topic_or_partition, f"Unable to find a topic named {name}.")
    if not 0 <= index < topic.partitions:
        raise BrokerError(ErrorCode.unknown_topic_or_partition, f"Unable to find partition {name}:{index}.")
    if replicas is None:
        raise BrokerError(ErrorCode.no_reassignment_in_progress)
    check_assignment(broker, replicas)


@api(46, 0, 0)
async def list_partition_reassignments(request: Request, broker: Broker) -> Any:
    return respond(request)
