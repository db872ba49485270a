"""44 IncrementalAlterConfigs, versions 0 and 1: set, remove, append to and take from single properties (KIP-339)."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.admin.config_changes import Change, Operation
from kafkalog_broker.api.alter_configs import altered
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import entity, response_module


@api(44, 0, 1)
async def handle(request: Request, broker: Broker) -> Any:
    return entity(
        response_module(request).IncrementalAlterConfigsResponse,
        responses=await altered(request, broker, _changes, replace=False),
    )


def _changes(resource: Any) -> list[Change]:
    changes = []
    for config in resource.configs:
        if config.config_operation not in Operation._value2member_map_:
            raise BrokerError(
                ErrorCode.invalid_request, f"Unknown operation {config.config_operation} for {config.name}"
            )
        changes.append((config.name, Operation(config.config_operation), config.value))
    return changes
