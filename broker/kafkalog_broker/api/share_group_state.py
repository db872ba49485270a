"""State of share partitions (KIP-932), between brokers: 83 InitializeShareGroupState, version 0; 84
ReadShareGroupState, version 0; 85 WriteShareGroupState, versions 0 and 1; 86 DeleteShareGroupState, version 0; 87
ReadShareGroupStateSummary, versions 0 and 1.

v1  delivery complete count (KIP-1226)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kafkalog_broker.admin.responses import respond_by_partition
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import respond
from kafkalog_broker.share.share_coordinator import WriteState
from kafkalog_broker.share.state_records import NOT_COUNTED, SharePartitionKey, StateBatch, share_partition

Fields = Mapping[str, Any]


@api(83, 0, 0)
async def initialize_share_group_state(request: Request, broker: Broker) -> Any:
    def initialize(key: SharePartitionKey, partition: Any) -> None:
        broker.share_coordinator.initialize(key, partition.state_epoch, partition.start_offset)

    return await _answered(request, initialize)


@api(84, 0, 0)
async def read_share_group_state(request: Request, broker: Broker) -> Any:
    def read(key: SharePartitionKey, partition: Any) -> Fields:
        state = broker.share_coordinator.read(key, partition.leader_epoch)
        batches = [batch._asdict() for batch in state.batches]
        return {"state_epoch": state.state_epoch, "start_offset": state.start_offset, "state_batches": batches}

    return await _answered(request, read)


@api(85, 0, 1)
async def write_share_group_state(request: Request, broker: Broker) -> Any:
    def write(key: SharePartitionKey, partition: Any) -> None:
        batches = [
            StateBatch(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
            for one in partition.state_batches
        ]
        complete = getattr(partition, "delivery_complete_count", NOT_COUNTED)
        broker.share_coordinator.write(
            key, WriteState(partition.state_epoch, partition.leader_epoch, partition.start_offset, complete, batches)
        )

    return await _answered(request, write)


@api(86, 0, 0)
async def delete_share_group_state(request: Request, broker: Broker) -> Any:
    def delete(key: SharePartitionKey, partition: Any) -> None:
        broker.share_coordinator.delete(key)

    return await _answered(request, delete)


@api(87, 0, 1)
async def read_share_group_state_summary(request: Request, broker: Broker) -> Any:
    def summary(key: SharePartitionKey, partition: Any) -> Fields:
        return broker.share_coordinator.summary(key)._asdict()

    return await _answered(request, summary)


async def _answered(request: Request, ask: Callable[[SharePartitionKey, Any], Fields | None]) -> Any:
    """Response with the fields `ask(key, partition)` of each partition, which may raise BrokerError. A request without
    a group names no partitions."""
    group_id = request.entity.group_id
    if not group_id:
        return respond(request)

    def answer(topic: Any, partition: Any) -> Fields:
        try:
            return ask(share_partition(group_id, topic.topic_id, partition.partition), partition) or {}
        except BrokerError as error:
            return {"error_code": error.code, "error_message": error.what}

    return await respond_by_partition(request, answer)
