"""Helpers of the responses of many APIs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from kafkalog_broker.protocol.api_registry import ConnectionInfo, Request
from kafkalog_broker.protocol.metadata_response import NodeEndpoint
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.security.api_rights import RIGHTS
from kafkalog_broker.security.authorizer import Authorizer


async def per_partition(
    topics: Iterable[Any],
    of_partition: Callable[[Any, Any], Any],
    of_topic: Callable[[Any, tuple[Any, ...]], Any],
) -> tuple[Any, ...]:
    """`of_topic(topic, answers)` for each topic of a request, with the answers `of_partition(topic, partition)` for
    each of its `partitions`, in the order of the request. Others have their turn in between."""
    turn = TimeSlice()
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
    """Message of a request that was refused as a whole. (Kafka prints its own object in it.)"""
    if code is ErrorCode.cluster_authorization_failed:
        right = RIGHTS[request.api_key].of(request)[0]
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
