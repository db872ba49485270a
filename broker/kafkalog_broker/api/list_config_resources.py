"""74 ListConfigResources, versions 0 and 1 (KIP-1142). v0 lists subscriptions to client metrics."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.admin.config_listing import ConfigResourceType, resource_type
from kafkalog_broker.broker import Broker
from kafkalog_broker.config.dynamic_configs import CLIENT_METRICS, GROUPS
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, response_module


@api(74, 0, 1)
async def handle(request: Request, broker: Broker) -> Any:
    module = response_module(request)
    numbers = list(request.entity.resource_types) if request.version >= 1 else [ConfigResourceType.CLIENT_METRICS]
    kinds = {resource_type(number) for number in numbers or ConfigResourceType}
    if None in kinds:
        return entity(module.ListConfigResourcesResponse, error_code=ErrorCode.unsupported_version, config_resources=())
    found: list[tuple[str, int]] = []
    for kind in (ConfigResourceType.BROKER_LOGGER, ConfigResourceType.BROKER):
        if kind in kinds:
            found.append((str(broker.node_id), int(kind)))
    if ConfigResourceType.TOPIC in kinds:
        found += [(topic.name, int(ConfigResourceType.TOPIC)) for topic in broker.topics]
    if ConfigResourceType.GROUP in kinds:
        found += [(group_id, int(ConfigResourceType.GROUP)) for group_id in broker.dynamic_configs.of[GROUPS]]
    if ConfigResourceType.CLIENT_METRICS in kinds:
        found += [(name, int(ConfigResourceType.CLIENT_METRICS)) for name in broker.dynamic_configs.of[CLIENT_METRICS]]
    return entity(
        module.ListConfigResourcesResponse,
        error_code=ErrorCode.none,
        config_resources=tuple(
            entity(module.ConfigResource, resource_name=name, resource_type=kind) for name, kind in found
        ),
    )


@on_error(74)
def failed(request: Request, code: ErrorCode) -> Any:
    return entity(response_module(request).ListConfigResourcesResponse, error_code=code, config_resources=())
