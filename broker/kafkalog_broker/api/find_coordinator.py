"""10 FindCoordinator, versions 0 to 6: which broker coordinates a group or a transactional id. Creates
__consumer_offsets or __transaction_state at the first use.

Coordinators of share groups (key type 2) are not served: INVALID_REQUEST, as Kafka answers where it has none.

v1  key type; throttle time and error message in the answer
v4  several keys at once (KIP-699)
v6  share groups (KIP-932)
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kafkalog_broker.admin.nodes import this_node
from kafkalog_broker.broker import Broker
from kafkalog_broker.config.internal_topics import internal_topic_configs
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, response_module
from kafkalog_spark.log.format.names import OFFSETS_TOPIC, TRANSACTION_TOPIC

_SEVERAL_KEYS_FROM = 4
_GROUP, _TRANSACTION = 0, 1
_NO_NODE = -1


class _Found(NamedTuple):
    error: ErrorCode = ErrorCode.none
    node_id: int = _NO_NODE
    host: str = ""
    port: int = -1
    message: str | None = None


@api(10, 0, 6)
async def handle(request: Request, broker: Broker) -> Any:
    key_type = getattr(request.entity, "key_type", _GROUP)
    if key_type not in (_GROUP, _TRANSACTION):
        what = f"this broker does not coordinate key type {key_type}"
        return _answer(request, _Found(ErrorCode.invalid_request, message=what))
    try:
        name, partitions = OFFSETS_TOPIC, broker.config.offsets_topic_num_partitions
        if key_type == _TRANSACTION:
            name, partitions = TRANSACTION_TOPIC, broker.config.transaction_state_log_num_partitions
        await broker.ensure_topic(name, partitions, internal_topic_configs(broker.config)[name])
    except BrokerError as error:
        return _answer(request, _Found(ErrorCode.coordinator_not_available, message=error.what))
    node = this_node(broker, request.connection)
    return _answer(request, _Found(node_id=node.node_id, host=node.host, port=node.port))


@on_error(10)
def failed(request: Request, code: ErrorCode) -> Any:
    return _answer(request, _Found(code))


def _answer(request: Request, found: _Found) -> Any:
    module = response_module(request)
    where = {"error_code": found.error, "node_id": found.node_id, "host": found.host, "port": found.port}
    if request.version < _SEVERAL_KEYS_FROM:
        # Kafka's Errors.NONE has the text NONE, and sends it.
        message = found.message if found.error is not ErrorCode.none else "NONE"
        return entity(module.FindCoordinatorResponse, error_message=message, **where)
    coordinators = tuple(
        entity(module.Coordinator, key=key, error_message=found.message or "", **where)
        for key in request.entity.coordinator_keys
    )
    return entity(module.FindCoordinatorResponse, coordinators=coordinators)
