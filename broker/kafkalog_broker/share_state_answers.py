"""Requests about the state of share partitions, answered one after the other (KIP-932, APIs 83 to 87)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kafkalog_broker.answers import per_partition
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Request
from kafkalog_broker.protocol.response_entity import entity, response_module
from kafkalog_broker.share.state.state_records import SharePartitionKey, share_partition
from kafkalog_broker.turn import Turn

Fields = Mapping[str, Any]
NO_FIELDS: Fields = {}


class StateResponse(NamedTuple):
    """The classes of an API's response, by name. `nothing`: what a share partition with an error has besides."""

    whole: str
    of_topic: str
    nothing: Fields = NO_FIELDS


async def answered(
    request: Request, response: StateResponse, ask: Callable[[SharePartitionKey, Any], Fields | None]
) -> Any:
    """`ask(key, partition)`: fields of the answer, or BrokerError. A request without a group is about nothing."""
    asked = request.entity

    def of_partition(topic: Any, partition: Any) -> Fields:
        try:
            key = share_partition(asked.group_id, topic.topic_id, partition.partition)
            return {"error_code": ErrorCode.none, "error_message": None, **(ask(key, partition) or {})}
        except BrokerError as error:
            return {"error_code": error.code, "error_message": error.what, **response.nothing}

    return await _response(request, response, asked.topics if asked.group_id else (), of_partition)


async def refused(request: Request, response: StateResponse, code: ErrorCode) -> Any:
    """The same error for all that is named."""
    fields = {"error_code": code, **response.nothing}
    return await _response(request, response, request.entity.topics, lambda topic, partition: fields)


async def _response(
    request: Request, response: StateResponse, topics: Any, fields_of: Callable[[Any, Any], Fields]
) -> Any:
    module = response_module(request)

    def of_partition(topic: Any, partition: Any) -> Any:
        return entity(module.PartitionResult, partition=partition.partition, **fields_of(topic, partition))

    def of_topic(topic: Any, partitions: Any) -> Any:
        return entity(getattr(module, response.of_topic), topic_id=topic.topic_id, partitions=partitions)

    results = await per_partition(topics, of_partition, of_topic, Turn())
    return entity(getattr(module, response.whole), results=results)
