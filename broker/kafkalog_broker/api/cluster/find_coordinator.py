"""10 FindCoordinator, versions 0 to 6: the broker that coordinates a group, a transactional ID or a share partition.

It is always this one. The coordinator's topic is created at its first use: __consumer_offsets, __transaction_state or
__share_group_state.

v1  key type; throttle time and error message in the response
v4  several keys (KIP-699)
v5  the client knows TRANSACTION_ABORTABLE (KIP-890), which this API never returns
v6  share partitions (KIP-932)
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from kafkalog_broker.api.cluster.cluster_description import this_node
from kafkalog_broker.api.error_responses import INVALID_REQUEST_MESSAGE
from kafkalog_broker.api.itemized_responses import respond_in_slices
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import CLUSTER_NAME, DENIALS, Operation, ResourceType
from kafkalog_broker.protocol.api_registry import api, on_error
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_spark.format.names import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from kafkalog_spark.format.partition_metadata import uuid_from_text

_FIRST_VERSION_WITH_SEVERAL_KEYS = 4
_FIRST_VERSION_WITH_SHARE_GROUPS = 6


class _KeyType(enum.IntEnum):
    """Kafka's `FindCoordinatorRequest.CoordinatorType`."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class _CoordinatorType(NamedTuple):
    """The topic of coordinators of one type, and the right that their clients need: on each key, or on the cluster."""

    topic: str
    resource: ResourceType
    operation: Operation


_COORDINATOR_TYPES: Mapping[int, _CoordinatorType] = {
    _KeyType.GROUP: _CoordinatorType(OFFSETS_TOPIC, ResourceType.GROUP, Operation.DESCRIBE),
    _KeyType.TRANSACTION: _CoordinatorType(TRANSACTION_TOPIC, ResourceType.TRANSACTIONAL_ID, Operation.DESCRIBE),
    # The clients of share coordinators are brokers.
    _KeyType.SHARE: _CoordinatorType(SHARE_STATE_TOPIC, ResourceType.CLUSTER, Operation.CLUSTER_ACTION),
}
"""By key type."""

_PARTITION = re.compile(r"[+-]?\d+")  # what Java's Integer.parseInt accepts

_Result = Mapping[str, Any]
"""Fields of the response for one key."""


@api(10, 0, 6)
async def find_coordinator(request: Request, broker: Broker) -> Any:
    key_type = request.entity.key_type
    coordinator_type = _COORDINATOR_TYPES.get(key_type)
    if coordinator_type is None:
        message = f"this broker does not coordinate key type {key_type}"
        return await _respond(request, _error(ErrorCode.invalid_request, message), {})
    if key_type == _KeyType.SHARE and request.version < _FIRST_VERSION_WITH_SHARE_GROUPS:
        return await _respond(request, _refusal(request, ErrorCode.invalid_request, INVALID_REQUEST_MESSAGE), {})
    refusals = await _refusals(request, coordinator_type)
    if refusals.keys() >= set(_keys(request)):  # the topic is not created for a client that has no right to any key
        return await _respond(request, {}, refusals)
    try:
        await broker.ensure_internal_topic(coordinator_type.topic)
    except BrokerError as error:
        return await _respond(request, _error(ErrorCode.coordinator_not_available, error.what), refusals)
    node = this_node(broker, request.connection)
    # For a single key Kafka sends the message of Errors.NONE, which is "NONE".
    message = "NONE" if request.version < _FIRST_VERSION_WITH_SEVERAL_KEYS else ""
    found = {
        "error_code": ErrorCode.none, "error_message": message,
        "node_id": node.node_id, "host": node.host, "port": node.port,
    }  # fmt: skip
    return await _respond(request, found, refusals)


@on_error(10)
async def find_coordinator_error(request: Request, code: ErrorCode) -> Any:
    coordinator_type = _COORDINATOR_TYPES.get(request.entity.key_type)
    refusals = {} if coordinator_type is None else await _refusals(request, coordinator_type)
    return await _respond(request, _refusal(request, code, None), refusals)


def _keys(request: Request) -> Sequence[str]:
    body = request.entity
    if request.version < _FIRST_VERSION_WITH_SEVERAL_KEYS:
        return [body.key]
    return cast("Sequence[str]", body.coordinator_keys)


async def _refusals(request: Request, coordinator_type: _CoordinatorType) -> dict[str, _Result]:
    """Return the results of keys that the client may not look up or that do not name a share partition."""
    code, message = DENIALS[coordinator_type.resource]
    denial = _refusal(request, code, message)
    operation, resource = coordinator_type.operation, coordinator_type.resource
    if request.entity.key_type == _KeyType.SHARE:
        if request.access is not None and not request.may(operation, resource, CLUSTER_NAME):
            return dict.fromkeys(_keys(request), denial)
        invalid = _refusal(request, ErrorCode.invalid_request, INVALID_REQUEST_MESSAGE)
        keys = TimeSlice().spread(_keys(request))
        return {key: invalid async for key in keys if not _is_share_partition_key(key)}
    if request.access is None:
        return {}
    keys = TimeSlice().spread(_keys(request))
    return {key: denial async for key in keys if not request.may(operation, resource, key)}


def _is_share_partition_key(key: str) -> bool:
    """Return whether a key is GROUP:TOPIC_ID:PARTITION; the group may contain colons (`SharePartitionKey.validate`)."""
    group, *topic_id_and_partition = key.rsplit(":", 2)
    try:
        topic_id, partition = topic_id_and_partition
        uuid_from_text(topic_id)
        return bool(group and _PARTITION.fullmatch(partition)) and -(2**31) <= int(partition) < 2**31
    except ValueError:
        return False


def _error(code: ErrorCode, message: str | None) -> _Result:
    return {"error_code": code, "error_message": message, "node_id": -1, "host": "", "port": -1}


def _refusal(request: Request, code: ErrorCode, message: str | None) -> _Result:
    """Return the result of an error whose message Kafka sends only in the versions with a single key."""
    return _error(code, message if request.version < _FIRST_VERSION_WITH_SEVERAL_KEYS else "")


async def _respond(request: Request, result: _Result, refusals: Mapping[str, _Result]) -> Any:
    """Respond to the keys in `refusals` with their result there, and to all other keys with `result`."""
    if request.version < _FIRST_VERSION_WITH_SEVERAL_KEYS:
        return build_response(request, **refusals.get(request.entity.key, result))
    return await respond_in_slices(
        request,
        "coordinators",
        ({"key": key, **refusals.get(key, result)} for key in request.entity.coordinator_keys),
    )
