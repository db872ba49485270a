"""47 OffsetDelete, version 0: forget what a group has committed to some partitions (KIP-496).

Offsets of topics that a member subscribes to stay: GROUP_SUBSCRIBED_TO_TOPIC. A partition named several times counts
once. Of many partitions others have their turn in between, and the group's state is looked at again each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from kafkalog_broker.admin.responses import per_partition
from kafkalog_broker.broker import Broker
from kafkalog_broker.coordinator.runtime import write_error
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import entity, error_response, respond, response_module
from kafkalog_broker.runtime.fair_scheduling import TimeSlice

AT_ONCE = 200
"""Partitions of which a group is made to forget the offsets before others may have their turn: some 2 ms."""


@api(47, 0, 0)
async def handle(request: Request, broker: Broker) -> Any:
    asked, turn = request.entity, TimeSlice()
    known: dict[tuple[str, int], ErrorCode] = {}
    refused: dict[str, ErrorCode] = {}
    for wanted in asked.topics:
        topic = broker.topics.get(wanted.name)
        code = request.refused(wanted.name)
        if code is not ErrorCode.none:
            refused[wanted.name] = code
            continue
        for part in wanted.partitions:
            if topic is not None and 0 <= part.partition_index < topic.partitions:
                known[wanted.name, part.partition_index] = ErrorCode.none
    try:
        if not known:
            broker.groups.delete_offsets(asked.group_id, [])
        async for some in turn.spread(_parts(known)):
            known.update(zip(some, broker.groups.delete_offsets(asked.group_id, some), strict=True))
    except BrokerError as error:
        return error_response(request, write_error(error.code))
    module = response_module(request)

    def of_partition(topic: Any, part: Any) -> Any:
        index = part.partition_index
        code = refused.get(topic.name) or known.get((topic.name, index), ErrorCode.unknown_topic_or_partition)
        return entity(module.OffsetDeleteResponsePartition, partition_index=index, error_code=code)

    def of_topic(topic: Any, partitions: Any) -> Any:
        return entity(module.OffsetDeleteResponseTopic, name=topic.name, partitions=partitions)

    topics = await per_partition(asked.topics, of_partition, of_topic)
    return respond(request, topics=topics)


def _parts(known: Iterable[tuple[str, int]]) -> Iterator[list[tuple[str, int]]]:
    left = iter(list(known))
    while some := list(islice(left, AT_ONCE)):
        yield some
