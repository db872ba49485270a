"""Changes of the properties of topics, brokers, groups and client metrics subscriptions.

33 AlterConfigs, versions 0 to 2: a resource's properties are those in the request, all others are removed. Deprecated
for IncrementalAlterConfigs, which older clients do not know.

44 IncrementalAlterConfigs, versions 0 and 1: set, remove, append to and take from single properties (KIP-339)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from kafkalog_broker.admin.config_changes import Change, ConfigOperation, alter_each
from kafkalog_broker.admin.config_listing import check_altering
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import entity, respond, response_module


@api(33, 0, 2)
async def alter_configs(request: Request, broker: Broker) -> Any:
    return respond(
        request,
        responses=await altered(request, broker, _replacements, replace=True),
    )


async def altered(
    request: Request, broker: Broker, changes_of: Callable[[Any], list[Change]], *, replace: bool
) -> tuple[Any, ...]:
    """Outcome of each resource, as both APIs answer it. changes_of, replace: see alter_each."""
    asked = request.entity
    outcomes = await alter_each(
        broker, asked.resources, changes_of, replace=replace, validate_only=asked.validate_only,
        check=partial(check_altering, request),
    )  # fmt: skip
    kind = response_module(request).AlterConfigsResourceResponse
    return tuple(
        entity(
            kind,
            error_code=code,
            error_message=what,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, (code, what) in zip(asked.resources, outcomes, strict=True)
    )


def _replacements(resource: Any) -> list[Change]:
    return [(config.name, ConfigOperation.SET, config.value) for config in resource.configs]


@api(44, 0, 1)
async def incremental_alter_configs(request: Request, broker: Broker) -> Any:
    return respond(
        request,
        responses=await altered(request, broker, _changes, replace=False),
    )


def _changes(resource: Any) -> list[Change]:
    changes = []
    for config in resource.configs:
        if config.config_operation not in ConfigOperation._value2member_map_:
            raise BrokerError(
                ErrorCode.invalid_request, f"Unknown operation {config.config_operation} for {config.name}"
            )
        changes.append((config.name, ConfigOperation(config.config_operation), config.value))
    return changes
