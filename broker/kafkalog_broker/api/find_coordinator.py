"""10 FindCoordinator, versions 0 to 6: which broker coordinates a group or a transactional id. Creates
__consumer_offsets, __transaction_state or __share_group_state at the first use.

v1  key type; throttle time and error message in the answer
v4  several keys at once (KIP-699)
v6  share groups (KIP-932)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, cast

from kafkalog_broker.admin.responses import this_node
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import CLUSTER_NAME, REFUSALS, Operation, ResourceType
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import respond
from kafkalog_spark.format.names import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC

_SEVERAL_KEYS_FROM = 4
_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_TYPES = {
    _GROUP: (OFFSETS_TOPIC, ResourceType.GROUP, Operation.DESCRIBE),
    _TRANSACTION: (TRANSACTION_TOPIC, ResourceType.TRANSACTIONAL_ID, Operation.DESCRIBE),
    _SHARE: (SHARE_STATE_TOPIC, ResourceType.CLUSTER, Operation.CLUSTER_ACTION),  # between brokers
}
"""By key type: the coordinator's topic, and the right that is needed."""
_NOWHERE: Mapping[str, Any] = {"error_code": ErrorCode.none, "node_id": -1, "host": "", "port": -1}


@api(10, 0, 6)
async def handle(request: Request, broker: Broker) -> Any:
    key_type = _key_type(request)
    if key_type not in _TYPES:
        what = f"this broker does not coordinate key type {key_type}"
        return _answer(request, set(), what, error_code=ErrorCode.invalid_request)
    refused = _refused(request)
    if refused.issuperset(_keys(request)):  # then nothing is created for the sender
        return _answer(request, refused)
    try:
        await broker.ensure_internal_topic(_TYPES[key_type][0])
    except BrokerError as error:
        return _answer(request, refused, error.what, error_code=ErrorCode.coordinator_not_available)
    node = this_node(broker, request.connection)
    return _answer(request, refused, node_id=node.node_id, host=node.host, port=node.port)


def _key_type(request: Request) -> int:
    return getattr(request.entity, "key_type", _GROUP)


def _keys(request: Request) -> Sequence[str]:
    asked = request.entity
    return [asked.key] if request.version < _SEVERAL_KEYS_FROM else cast("Sequence[str]", asked.coordinator_keys)


def _refused(request: Request) -> set[str]:
    if request.access is None or _key_type(request) not in _TYPES:
        return set()
    _, resource, operation = _TYPES[_key_type(request)]
    if resource is ResourceType.CLUSTER:
        return set() if request.may(operation, resource, CLUSTER_NAME) else set(_keys(request))
    return {key for key in _keys(request) if not request.may(operation, resource, key)}


@on_error(10)
def failed(request: Request, code: ErrorCode) -> Any:
    return _answer(request, _refused(request), error_code=code)


def _answer(request: Request, refused: Set[str], message: str | None = None, **where: Any) -> Any:
    """The same for every key but those that are refused."""
    told = {**_NOWHERE, **where}
    of_refused, text = {}, ""
    if refused:
        code, text = REFUSALS[_TYPES[_key_type(request)][1]]
        of_refused = {**_NOWHERE, "error_code": code}
    if request.version < _SEVERAL_KEYS_FROM:
        if refused:
            return respond(request, error_message=text, **of_refused)
        # Kafka's Errors.NONE has the text NONE, and sends it.
        return respond(request, error_message="NONE" if told["error_code"] is ErrorCode.none else message, **told)
    return respond(request, coordinators=[  # Kafka has no text for a key that is refused here
        {"key": key, "error_message": "", **of_refused} if key in refused
        else {"key": key, "error_message": message or "", **told}
        for key in request.entity.coordinator_keys
    ])  # fmt: skip
