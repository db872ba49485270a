"""Helpers of the responses of many APIs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import CLUSTER_NAME, TEXTS, Operation, ResourceType
from kafkalog_broker.protocol.api_messages import response_class
from kafkalog_broker.protocol.hot_messages import NodeEndpoint
from kafkalog_broker.protocol.request import ConnectionInfo, Request
from kafkalog_broker.protocol.responses import (
    answer_layout,
    entity,
    error_response,
    respond,
    struct_of,
)
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.security.api_rights import RIGHTS
from kafkalog_broker.security.authorizer import Authorizer

Answer = Callable[[Any, Any], Mapping[str, Any]]


async def respond_by_partition(request: Request, answer: Answer, **fields: Any) -> Any:
    """The response to a request that names partitions by topic. `answer(topic, partition)` has the fields of each
    partition's struct but those that say which one it is, or raises BrokerError; `fields`: of the whole. Others have
    their turn in between."""
    request_kind: Any = type(request.entity)
    layout = answer_layout(response_class(request.api_key, request.version), request_kind)
    assert layout.results is not None
    topics = getattr(request.entity, layout.request_array)
    return respond(request, **{layout.results: await answers_by_partition(layout.element, topics, answer)}, **fields)


async def respond_in_slices(request: Request, array: str, items: Iterable[Mapping[str, Any]], **fields: Any) -> Any:
    """The response whose `array` has a struct for each of `items`; others have their turn between two of them.

    For requests that may name thousands of things.
    """
    struct = struct_of(response_class(request.api_key, request.version), array)
    structs = () if struct is None else [entity(struct, **item) async for item in TimeSlice().spread(items)]
    return respond(request, **{array: tuple(structs)}, **fields)


async def answers_by_partition(kind: Any, topics: Iterable[Any], answer: Answer) -> list[Any]:
    """Structs of the class `kind` for topics of a request, as in `respond_by_partition`."""
    turn, answers = TimeSlice(), []
    async for topic in turn.spread(topics):
        topic_kind: Any = type(topic)
        layout, partitions = answer_layout(kind, topic_kind), []
        async for partition in turn.spread(getattr(topic, layout.request_array)):
            partition_kind: Any = type(partition)
            names = answer_layout(layout.element, partition_kind).names
            fields = {name: getattr(partition, name, partition) for name in names}
            try:
                fields |= answer(topic, partition)
            except BrokerError as error:
                fields |= {"error_code": error.code, "error_message": error.what}
            partitions.append(entity(layout.element, **fields))
        of_topic = {name: getattr(topic, name) for name in layout.names}
        answers.append(entity(kind, **of_topic, **{layout.results or "": partitions}))
    return answers


_FENCED_FROM = {22: 4, 24: 2, 25: 2, 26: 2}


def known_code(request: Request, code: ErrorCode) -> ErrorCode:
    """`code` as the client knows it: PRODUCER_FENCED was INVALID_PRODUCER_EPOCH in older versions (KIP-588)."""
    if code is ErrorCode.producer_fenced and request.version < _FENCED_FROM.get(request.api_key, 0):
        return ErrorCode.invalid_producer_epoch
    return code


def failed(request: Request, code: ErrorCode) -> Any:
    """The response to a request that failed as a whole, of APIs without an `on_error` of their own."""
    code = known_code(request, code)
    if request.api_key in _WITHOUT_TEXT:
        return error_response(request, code)
    return error_response(request, code, TEXTS.get(code) if request.api_key in _BRIEF else needs_text(request, code))


_BRIEF = frozenset((55, 80, 81))  # APIs of Kafka's quorum, which do not say which right is missing

_WITHOUT_TEXT = frozenset((83, 84, 85, 86, 87))  # between share coordinators

NO_AUTHORIZER = "No Authorizer is configured."


def authorizer_of(broker: Broker) -> Authorizer:
    """Raises BrokerError (SECURITY_DISABLED) where everybody may do everything."""
    if broker.authorizer is None:
        raise BrokerError(ErrorCode.security_disabled, NO_AUTHORIZER)
    return broker.authorizer


def needs_text(request: Request, code: ErrorCode) -> str | None:
    """Message of a request that was refused as a whole. (Kafka prints its own object in it.)"""
    if code is ErrorCode.cluster_authorization_failed:
        for right in RIGHTS[request.api_key].of(request):
            if right.resource is ResourceType.CLUSTER:
                return f"The request needs {right.operation.name} permission."
    return NO_AUTHORIZER if code is ErrorCode.security_disabled else None


def cluster_operations(request: Request) -> int:
    """Operations that the sender may do with the cluster, as bits; 0 if it may not describe it."""
    if not request.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return request.operations(ResourceType.CLUSTER, CLUSTER_NAME)


def this_node(broker: Broker, connection: ConnectionInfo) -> NodeEndpoint:
    """Node id and the address that clients of that connection's listener get."""
    known = broker.advertised
    listener = next((entry for entry in known if entry.name == connection.listener), known[0])
    return NodeEndpoint(broker.node_id, listener.host, listener.port, broker.config.broker_rack)
