"""What the answers of many APIs have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Request
from kafkalog_broker.protocol.response_entity import entity, response_module
from kafkalog_broker.runtime.turn import Turn
from kafkalog_broker.security.api_rights import RIGHTS
from kafkalog_broker.security.authorizer import Authorizer
from kafkalog_broker.share.state.state_records import SharePartitionKey, share_partition


async def per_partition(
    topics: Iterable[Any],
    of_partition: Callable[[Any, Any], Any],
    of_topic: Callable[[Any, tuple[Any, ...]], Any],
    turn: Turn,
) -> tuple[Any, ...]:
    """`of_topic(topic, answers)` for each topic of a request, with the answers `of_partition(topic, partition)` for
    each of its `partitions`, in the order of the request. Others have their turn in between."""
    return tuple(
        [
            of_topic(topic, tuple([of_partition(topic, one) async for one in turn.spread(topic.partitions)]))
            async for topic in turn.spread(topics)
        ]
    )


def fenced_before(first_version: int, version: int, code: ErrorCode) -> ErrorCode:
    """`code` as a client of `version` knows it: PRODUCER_FENCED came with `first_version` of an API (KIP-588), and was
    INVALID_PRODUCER_EPOCH before."""
    if code is ErrorCode.producer_fenced and version < first_version:
        return ErrorCode.invalid_producer_epoch
    return code


NO_AUTHORIZER = "No Authorizer is configured."


def authorizer_of(broker: Broker) -> Authorizer:
    """Raises BrokerError (SECURITY_DISABLED) where everybody may do everything."""
    if broker.authorizer is None:
        raise BrokerError(ErrorCode.security_disabled, NO_AUTHORIZER)
    return broker.authorizer


def needs_text(request: Request, code: ErrorCode) -> str | None:
    """What is said with a request that was refused as a whole. (Kafka prints its own object in it.)"""
    if code is ErrorCode.cluster_authorization_failed:
        right = RIGHTS[request.api_key].of(request)[0]
        return f"The request needs {right.operation.name} permission."
    return NO_AUTHORIZER if code is ErrorCode.security_disabled else None


# Requests about the state of share partitions, answered one after the other (KIP-932, APIs 83 to 87).

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
