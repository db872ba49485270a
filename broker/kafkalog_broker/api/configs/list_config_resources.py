"""74 ListConfigResources, versions 0 and 1: the names of resources that have a configuration (KIP-1142).

v0  subscriptions to client metrics only
v1  resource types in the request
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafkalog_broker.admin.config_resources import ConfigResourceType, known_resource_type
from kafkalog_broker.broker import Broker
from kafkalog_broker.config.dynamic_configs import CLIENT_METRICS, GROUPS
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response


@api(74, 0, 1)
def list_config_resources(request: Request, broker: Broker) -> Any:
    numbers = list(request.entity.resource_types) if request.version >= 1 else [ConfigResourceType.CLIENT_METRICS]
    kinds = {known_resource_type(number) for number in numbers or ConfigResourceType}
    if None in kinds:
        return build_response(request, error_code=ErrorCode.unsupported_version, config_resources=())
    node_id = str(broker.node_id)
    names_by_kind: dict[ConfigResourceType, Iterable[str]] = {
        ConfigResourceType.BROKER_LOGGER: [node_id],
        ConfigResourceType.BROKER: [node_id],
        ConfigResourceType.TOPIC: (topic.name for topic in broker.topics),
        ConfigResourceType.GROUP: broker.dynamic_configs.resources[GROUPS],
        ConfigResourceType.CLIENT_METRICS: broker.dynamic_configs.resources[CLIENT_METRICS],
    }
    return build_response(request, config_resources=[
        {"resource_name": name, "resource_type": int(kind)}
        for kind, names in names_by_kind.items() if kind in kinds for name in names
    ])  # fmt: skip
