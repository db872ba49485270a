"""State of share partitions (KIP-932), between brokers: 83 InitializeShareGroupState, version 0; 84
ReadShareGroupState, version 0; 85 WriteShareGroupState, versions 0 and 1; 86 DeleteShareGroupState, version 0; 87
ReadShareGroupStateSummary, versions 0 and 1. v1: delivery complete count (KIP-1226)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kafkalog_broker.admin.responses import respond_by_partition
from kafkalog_broker.broker import Broker
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import respond
from kafkalog_broker.share.share_coordinator import ShareCoordinator, WriteState
from kafkalog_broker.share.state_records import NOT_COUNTED, SharePartitionKey, StateBatch, share_partition

Fields = Mapping[str, Any]


def _read(coordinator: ShareCoordinator, key: SharePartitionKey, partition: Any) -> Fields:
    state = coordinator.read(key, partition.leader_epoch)
    batches = [batch._asdict() for batch in state.batches]
    return {"state_epoch": state.state_epoch, "start_offset": state.start_offset, "state_batches": batches}


def _write(coordinator: ShareCoordinator, key: SharePartitionKey, partition: Any) -> None:
    batches = [
        StateBatch(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
        for one in partition.state_batches
    ]
    complete = getattr(partition, "delivery_complete_count", NOT_COUNTED)
    coordinator.write(
        key, WriteState(partition.state_epoch, partition.leader_epoch, partition.start_offset, complete, batches)
    )


_ASK: Mapping[int, Callable[[ShareCoordinator, SharePartitionKey, Any], Fields | None]] = {
    83: lambda coordinator, key, wanted: coordinator.initialize(key, wanted.state_epoch, wanted.start_offset),
    84: _read,
    85: _write,
    86: lambda coordinator, key, _: coordinator.delete(key),
    87: lambda coordinator, key, _: coordinator.summary(key)._asdict(),
}
"""By API key: the fields of a partition's answer; may raise BrokerError."""


@api(83, 0, 0)
@api(84, 0, 0)
@api(85, 0, 1)
@api(86, 0, 0)
@api(87, 0, 1)
async def share_group_state(request: Request, broker: Broker) -> Any:
    """A request without a group names no partitions."""
    group_id, ask = request.entity.group_id, _ASK[request.api_key]
    if not group_id:
        return respond(request)

    def answer(topic: Any, partition: Any) -> Fields:
        key = share_partition(group_id, topic.topic_id, partition.partition)
        return ask(broker.share_coordinator, key, partition) or {}

    return await respond_by_partition(request, answer)
