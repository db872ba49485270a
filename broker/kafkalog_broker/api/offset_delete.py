"""47 OffsetDelete, version 0: forget what a group has committed to some partitions (KIP-496).

Offsets of topics that a member subscribes to stay: GROUP_SUBSCRIBED_TO_TOPIC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.rebalance import write_error
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, response_module

if TYPE_CHECKING:
    from kafkalog_broker.server import Broker


@api(47, 0, 0)
async def handle(request: Request, broker: Broker) -> Any:
    asked = request.entity
    known: list[tuple[str, int]] = []
    for wanted in asked.topics:
        topic = broker.topics.get(wanted.name)
        for part in wanted.partitions:
            if topic is not None and 0 <= part.partition_index < topic.partitions:
                known.append((wanted.name, part.partition_index))
    try:
        codes = broker.groups.delete_offsets(asked.group_id, known)
    except BrokerError as error:
        return failed(request, write_error(error.code))
    by_partition = dict(zip(known, codes, strict=True))
    module = response_module(request)
    topics = tuple(
        entity(
            module.OffsetDeleteResponseTopic,
            name=wanted.name,
            partitions=tuple(
                entity(
                    module.OffsetDeleteResponsePartition,
                    partition_index=part.partition_index,
                    error_code=by_partition.get(
                        (wanted.name, part.partition_index), ErrorCode.unknown_topic_or_partition
                    ),
                )
                for part in wanted.partitions
            ),
        )
        for wanted in asked.topics
    )
    return entity(module.OffsetDeleteResponse, error_code=ErrorCode.none, topics=topics)


@on_error(47)
def failed(request: Request, code: ErrorCode) -> Any:
    return entity(response_module(request).OffsetDeleteResponse, error_code=code, topics=())
