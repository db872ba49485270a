"""44 IncrementalAlterConfigs, versions 0 and 1: set, remove, append to and take from single properties (KIP-339)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.admin.config_changes import Change, Operation, alter_each
from broker.errors import BrokerError, ErrorCode
from broker.protocol.api_registry import Request, api
from broker.protocol.response_entity import entity, response_module

if TYPE_CHECKING:
    from broker.server import Broker


@api(44, 0, 1)
async def handle(request: Request, broker: Broker) -> Any:
    asked = request.entity
    module = response_module(request)
    outcomes = await alter_each(broker, asked.resources, _changes, replace=False, validate_only=asked.validate_only)
    responses = tuple(
        entity(
            module.AlterConfigsResourceResponse,
            error_code=code,
            error_message=what,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, (code, what) in zip(asked.resources, outcomes, strict=True)
    )
    return entity(module.IncrementalAlterConfigsResponse, responses=responses)


def _changes(resource: Any) -> list[Change]:
    changes = []
    for config in resource.configs:
        if config.config_operation not in Operation._value2member_map_:
            raise BrokerError(
                ErrorCode.invalid_request, f"Unknown operation {config.config_operation} for {config.name}"
            )
        changes.append((config.name, Operation(config.config_operation), config.value))
    return changes
