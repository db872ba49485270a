"""10 FindCoordinator, versions 0 to 6: the broker that coordinates a group, a transactional ID or a share partition.

It is always this one. The coordinator's topic is created at its first use: __consumer_offsets, __transaction_state or
__share_group_state.

v1  key type; throttle time and error message in the response
v4  several keys (KIP-699)
v6  share groups (KIP-932)
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple, cast

from kafkalog_broker.api.cluster.cluster_description import this_node
from kafkalog_broker.api.itemized_responses import respond_in_slices
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import CLUSTER_NAME, DENIALS, Operation, ResourceType
from kafkalog_broker.protocol.api_registry import api, on_error
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_spark.format.names import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC

_FIRST_VERSION_WITH_SEVERAL_KEYS = 4


class _KeyType(enum.IntEnum):
    """Kafka's `FindCoordinatorRequest.CoordinatorType`."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class _Coordinator(NamedTuple):
    """The topic of a coordinator and the right that its clients need: on each key, or on the cluster."""

    topic: str
    resource: ResourceType
    operation: Operation


_COORDINATORS: Mapping[int, _Coordinator] = {
    _KeyType.GROUP: _Coordinator(OFFSETS_TOPIC, ResourceType.GROUP, Operation.DESCRIBE),
    _KeyType.TRANSACTION: _Coordinator(TRANSACTION_TOPIC, ResourceType.TRANSACTIONAL_ID, Operation.DESCRIBE),
    _KeyType.SHARE: _Coordinator(SHARE_STATE_TOPIC, ResourceType.CLUSTER, Operation.CLUSTER_ACTION),  # for brokers only
}
"""By key type."""

_NO_NODE: Mapping[str, Any] = {"error_code": ErrorCode.none, "node_id": -1, "host": "", "port": -1}


@api(10, 0, 6)
async def find_coordinator(request: Request, broker: Broker) -> Any:
    coordinator = _coordinator(request)
    if coordinator is None:
        message = f"this broker does not coordinate key type {_key_type(request)}"
        return await _response(request, set(), message, error_code=ErrorCode.invalid_request)
    denied = await _denied_keys(request)
    if denied.issuperset(_keys(request)):  # the topic is not created for a sender without any right
        return await _response(request, denied)
    try:
        await broker.ensure_internal_topic(coordinator.topic)
    except BrokerError as error:
        return await _response(request, denied, error.what, error_code=ErrorCode.coordinator_not_available)
    node = this_node(broker, request.connection)
    return await _response(request, denied, node_id=node.node_id, host=node.host, port=node.port)


@on_error(10)
async def find_coordinator_error(request: Request, code: ErrorCode) -> Any:
    return await _response(request, await _denied_keys(request), error_code=code)


def _key_type(request: Request) -> int:
    key_type: int = request.entity.key_type
    return key_type


def _coordinator(request: Request) -> _Coordinator | None:
    """Return the coordinator for the key type of a request, or None for an unknown key type."""
    return _COORDINATORS.get(_key_type(request))


def _keys(request: Request) -> Sequence[str]:
    body = request.entity
    if request.version < _FIRST_VERSION_WITH_SEVERAL_KEYS:
        return [body.key]
    return cast("Sequence[str]", body.coordinator_keys)


async def _denied_keys(request: Request) -> set[str]:
    """Return the keys whose coordinator the sender may not look up."""
    coordinator = _coordinator(request)
    if request.access is None or coordinator is None:
        return set()
    operation, resource = coordinator.operation, coordinator.resource
    if resource is ResourceType.CLUSTER:
        return set() if request.may(operation, resource, CLUSTER_NAME) else set(_keys(request))
    keys = TimeSlice().spread(_keys(request))
    return {key async for key in keys if not request.may(operation, resource, key)}


async def _response(request: Request, denied: Set[str], message: str | None = None, **fields: Any) -> Any:
    """Return a response with the same `fields` and message for all keys except the denied ones."""
    result = {**_NO_NODE, **fields}
    denial = {}
    denial_message = ""
    if denied:
        coordinator = _coordinator(request)
        assert coordinator is not None
        code, denial_message = DENIALS[coordinator.resource]
        denial = {**_NO_NODE, "error_code": code}
    if request.version < _FIRST_VERSION_WITH_SEVERAL_KEYS:
        if denied:
            return build_response(request, error_message=denial_message, **denial)
        # Without an error Kafka sends the message of Errors.NONE, which is "NONE".
        return build_response(
            request, error_message="NONE" if result["error_code"] is ErrorCode.none else message, **result
        )
    return await respond_in_slices(request, "coordinators", (
        {"key": key, "error_message": "", **denial} if key in denied  # Kafka has no message for a denied key here
        else {"key": key, "error_message": message or "", **result}
        for key in request.entity.coordinator_keys
    ))  # fmt: skip
