"""State of share partitions at the share coordinator, exchanged between brokers (KIP-932).

83 InitializeShareGroupState, version 0
84 ReadShareGroupState, version 0
85 WriteShareGroupState, versions 0 and 1
86 DeleteShareGroupState, version 0
87 ReadShareGroupStateSummary, versions 0 and 1

v1  delivery complete count (KIP-1226)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kafkalog_broker.api.itemized_responses import respond_by_partition
from kafkalog_broker.broker import Broker
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response
from kafkalog_broker.share.share_coordinator import ShareCoordinator
from kafkalog_broker.share.share_state import SharePartitionKey, StateBatch, share_partition_key

Fields = dict[str, Any]
"""Fields of a partition's result."""


@api(83, 0, 0)
async def initialize_share_group_state(request: Request, broker: Broker) -> Any:
    return await _respond(request, broker, _initialize)


@api(84, 0, 0)
async def read_share_group_state(request: Request, broker: Broker) -> Any:
    return await _respond(request, broker, _read)


@api(85, 0, 1)
async def write_share_group_state(request: Request, broker: Broker) -> Any:
    return await _respond(request, broker, _write)


@api(86, 0, 0)
async def delete_share_group_state(request: Request, broker: Broker) -> Any:
    return await _respond(request, broker, _delete)


@api(87, 0, 1)
async def read_share_group_state_summary(request: Request, broker: Broker) -> Any:
    return await _respond(request, broker, _read_summary)


def _initialize(coordinator: ShareCoordinator, key: SharePartitionKey, partition: Any) -> Fields:
    coordinator.initialize(key, partition.state_epoch, partition.start_offset)
    return {}


def _read(coordinator: ShareCoordinator, key: SharePartitionKey, partition: Any) -> Fields:
    state = coordinator.read(key, partition.leader_epoch)
    batches = [batch._asdict() for batch in state.batches]
    return {"state_epoch": state.state_epoch, "start_offset": state.start_offset, "state_batches": batches}


def _write(coordinator: ShareCoordinator, key: SharePartitionKey, partition: Any) -> Fields:
    batches = [
        StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in partition.state_batches
    ]
    coordinator.write(
        key,
        state_epoch=partition.state_epoch,
        leader_epoch=partition.leader_epoch,
        start_offset=partition.start_offset,
        delivery_complete_count=partition.delivery_complete_count,
        batches=batches,
    )
    return {}


def _delete(coordinator: ShareCoordinator, key: SharePartitionKey, partition: Any) -> Fields:
    coordinator.delete(key)
    return {}


def _read_summary(coordinator: ShareCoordinator, key: SharePartitionKey, partition: Any) -> Fields:
    return coordinator.summary(key)._asdict()


async def _respond(
    request: Request, broker: Broker, operation: Callable[[ShareCoordinator, SharePartitionKey, Any], Fields]
) -> Any:
    """Perform an operation on each partition of the request. Without a group ID, the response is empty."""
    group_id = request.entity.group_id
    if not group_id:
        return build_response(request)

    def result(topic: Any, partition: Any) -> Mapping[str, Any]:
        key = share_partition_key(group_id, topic.topic_id, partition.partition)
        return operation(broker.share_coordinator, key, partition)

    return await respond_by_partition(request, result)
