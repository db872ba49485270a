"""10 FindCoordinator, versions 0 to 6: which broker coordinates a group or a transactional id. Creates
__consumer_offsets, __transaction_state or __share_group_state at the first use.

v1  key type; throttle time and error message in the answer
v4  several keys at once (KIP-699)
v6  share groups (KIP-932)
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any, NamedTuple, cast

from kafkalog_broker.admin.responses import this_node
from kafkalog_broker.broker import Broker
from kafkalog_broker.config.log_config import internal_topic_configs
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import CLUSTER_NAME, REFUSALS, Operation, ResourceType
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import respond
from kafkalog_spark.format.names import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC

_SEVERAL_KEYS_FROM = 4
_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_RESOURCES = {
    _GROUP: ResourceType.GROUP,
    _TRANSACTION: ResourceType.TRANSACTIONAL_ID,
    _SHARE: ResourceType.CLUSTER,  # between brokers
}
_NO_NODE = -1


class _Coordinator(NamedTuple):
    error: ErrorCode = ErrorCode.none
    node_id: int = _NO_NODE
    host: str = ""
    port: int = -1
    message: str | None = None

    def where(self) -> dict[str, Any]:
        """All fields of an answer but the message."""
        return {"error_code": self.error, "node_id": self.node_id, "host": self.host, "port": self.port}


@api(10, 0, 6)
async def handle(request: Request, broker: Broker) -> Any:
    key_type = getattr(request.entity, "key_type", _GROUP)
    if key_type not in (_GROUP, _TRANSACTION, _SHARE):
        what = f"this broker does not coordinate key type {key_type}"
        return _answer(request, _Coordinator(ErrorCode.invalid_request, message=what), set())
    refused = _refused(request)
    if refused.issuperset(_keys(request)):  # then nothing is created for the sender
        return _answer(request, _Coordinator(), refused)
    try:
        name, partitions = OFFSETS_TOPIC, broker.config.offsets_topic_num_partitions
        if key_type == _TRANSACTION:
            name, partitions = TRANSACTION_TOPIC, broker.config.transaction_state_log_num_partitions
        elif key_type == _SHARE:
            name, partitions = SHARE_STATE_TOPIC, broker.config.share_coordinator_state_topic_num_partitions
        await broker.ensure_topic(name, partitions, internal_topic_configs(broker.config)[name])
    except BrokerError as error:
        return _answer(request, _Coordinator(ErrorCode.coordinator_not_available, message=error.what), refused)
    node = this_node(broker, request.connection)
    return _answer(request, _Coordinator(node_id=node.node_id, host=node.host, port=node.port), refused)


def _keys(request: Request) -> Sequence[str]:
    asked = request.entity
    return [asked.key] if request.version < _SEVERAL_KEYS_FROM else cast("Sequence[str]", asked.coordinator_keys)


def _refused(request: Request) -> set[str]:
    if getattr(request.entity, "key_type", _GROUP) == _SHARE and request.access is not None:
        allowed = request.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
        return set() if allowed else set(_keys(request))
    resource = _RESOURCES.get(getattr(request.entity, "key_type", _GROUP))
    if resource is None or request.access is None:
        return set()
    return {key for key in _keys(request) if not request.may(Operation.DESCRIBE, resource, key)}


@on_error(10)
def failed(request: Request, code: ErrorCode) -> Any:
    return _answer(request, _Coordinator(code), _refused(request))


def _answer(request: Request, coordinator: _Coordinator, refused: Set[str]) -> Any:
    """The same for every key but those that are refused."""
    if request.version < _SEVERAL_KEYS_FROM:
        if refused:
            coordinator = _not_allowed(request)
        # Kafka's Errors.NONE has the text NONE, and sends it.
        message = coordinator.message if coordinator.error is not ErrorCode.none else "NONE"
        return respond(request, error_message=message, **coordinator.where())
    coordinators = []
    for key in request.entity.coordinator_keys:
        # Kafka has no text for a key that is refused here.
        told = _not_allowed(request)._replace(message="") if key in refused else coordinator
        coordinators.append({"key": key, "error_message": told.message or "", **told.where()})
    return respond(request, coordinators=coordinators)


def _not_allowed(request: Request) -> _Coordinator:
    code, text = REFUSALS[_RESOURCES[getattr(request.entity, "key_type", _GROUP)]]
    return _Coordinator(code, message=text)
