"""Reassignment of partitions to other nodes (KIP-455): partitions stay on the one node of the cluster.

45 AlterPartitionReassignments, versions 0 and 1: accepts this node only.
46 ListPartitionReassignments, version 0: always empty.
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.admin.topic_validation import validate_assignment
from kafkalog_broker.api.itemized_responses import respond_by_partition
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response


@api(45, 0, 1)
async def alter_partition_reassignments(request: Request, broker: Broker) -> Any:
    def result(topic: Any, partition: Any) -> dict[str, Any]:
        name = topic.name
        index = partition.partition_index
        node_ids = partition.replicas
        existing_topic = broker.topics.get(name)
        code = ErrorCode.unknown_topic_or_partition
        if existing_topic is None:
            raise BrokerError(code, f"Unable to find a topic named {name}.")
        if not 0 <= index < existing_topic.partitions:
            raise BrokerError(code, f"Unable to find partition {name}:{index}.")
        if node_ids is None:  # cancel a reassignment
            return {"error_code": ErrorCode.no_reassignment_in_progress}
        validate_assignment(broker, node_ids)
        return {}

    may_change = request.entity.allow_replication_factor_change
    return await respond_by_partition(request, result, allow_replication_factor_change=may_change)


@api(46, 0, 0)
def list_partition_reassignments(request: Request, broker: Broker) -> Any:
    return build_response(request)
