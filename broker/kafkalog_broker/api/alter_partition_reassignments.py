"""45 AlterPartitionReassignments, versions 0 and 1 (KIP-455): partitions stay on the one node there is."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.admin.responses import needs_text, per_partition
from kafkalog_broker.admin.topic_checks import check_assignment
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, response_module
from kafkalog_broker.runtime.turn import Turn


@api(45, 0, 1)
async def handle(request: Request, broker: Broker) -> Any:
    asked, module = request.entity, response_module(request)

    def of_partition(topic: Any, partition: Any) -> Any:
        code, what = ErrorCode.none, None
        try:
            _check(broker, topic.name, partition.partition_index, partition.replicas)
        except BrokerError as error:
            code = error.code
            what = None if code is ErrorCode.no_reassignment_in_progress else error.what
        response = module.ReassignablePartitionResponse
        return entity(response, partition_index=partition.partition_index, error_code=code, error_message=what)

    def of_topic(topic: Any, partitions: Any) -> Any:
        return entity(module.ReassignableTopicResponse, name=topic.name, partitions=partitions)

    return entity(
        module.AlterPartitionReassignmentsResponse,
        allow_replication_factor_change=getattr(asked, "allow_replication_factor_change", True),
        error_code=ErrorCode.none,
        error_message=None,
        responses=await per_partition(asked.topics, of_partition, of_topic, Turn()),
    )


@on_error(45)
async def failed(request: Request, code: ErrorCode) -> Any:
    asked, module, what = request.entity, response_module(request), needs_text(request, code)

    def of_partition(topic: Any, partition: Any) -> Any:
        index = partition.partition_index
        return entity(module.ReassignablePartitionResponse, partition_index=index, error_code=code, error_message=what)

    def of_topic(topic: Any, partitions: Any) -> Any:
        return entity(module.ReassignableTopicResponse, name=topic.name, partitions=partitions)

    return entity(
        module.AlterPartitionReassignmentsResponse,
        allow_replication_factor_change=getattr(asked, "allow_replication_factor_change", True),
        error_code=code,
        error_message=what,
        responses=await per_partition(asked.topics, of_partition, of_topic, Turn()),
    )


def _check(broker: Broker, name: str, index: int, replicas: Any) -> None:
    topic = broker.topics.get(name)
    if topic is None:
        raise BrokerError(ErrorCode.unknown_topic_or_partition, f"Unable to find a topic named {name}.")
    if not 0 <= index < topic.partitions:
        raise BrokerError(ErrorCode.unknown_topic_or_partition, f"Unable to find partition {name}:{index}.")
    if replicas is None:
        raise BrokerError(ErrorCode.no_reassignment_in_progress)
    check_assignment(broker, replicas)
