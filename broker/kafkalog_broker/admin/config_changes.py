"""Alter the configuration of resources, as AlterConfigs and IncrementalAlterConfigs request it.

The new overrides are on disk and in effect before the response. All topics of a request are changed with one write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from kafkalog_broker.admin.broker_config_changes import alter_broker_config
from kafkalog_broker.admin.client_metrics_changes import alter_client_metrics
from kafkalog_broker.admin.config_operations import ConfigOperation, PropertyChange, ResourceChange
from kafkalog_broker.admin.config_resources import (
    ConfigResourceType,
    authorize_config,
    known_resource_type,
    require_this_broker,
)
from kafkalog_broker.admin.group_config_changes import alter_group_config
from kafkalog_broker.admin.logger_levels import requested_levels, set_levels
from kafkalog_broker.admin.topic_config_changes import apply_topic_configs, checked_topic_config
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import Operation
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.runtime.fair_scheduling import TimeSlice

_ALTER_CONFIGS = 33


async def alter_configs(request: Request, broker: Broker) -> list[BrokerError | None]:
    """Alter the resources of an AlterConfigs or IncrementalAlterConfigs request.

    An error of one resource does not affect the others. Topics are changed together, after all other resources.

    Returns:
        The error of each resource in request order; None if it was altered.
    """
    body = request.entity
    time_slice = TimeSlice()
    errors: list[BrokerError | None] = []
    topic_overrides: dict[str, Mapping[str, str]] = {}
    topic_positions: list[int] = []  # in `errors`
    occurrences = Counter((resource.resource_type, resource.resource_name) for resource in body.resources)
    async with broker.alteration_lock:  # one request at a time, because a change is relative to the present overrides
        async for resource in time_slice.spread(body.resources):
            type_code, name = resource.resource_type, resource.resource_name
            try:
                resource_type = known_resource_type(type_code)
                if occurrences[type_code, name] > 1:
                    raise BrokerError(ErrorCode.invalid_request, "Each resource must appear at most once.")
                if resource_type is None:
                    raise BrokerError(ErrorCode.invalid_request, f"Unknown resource type {type_code}")
                authorize_config(request, Operation.ALTER_CONFIGS, resource_type, name)
                change = ResourceChange(
                    name, _property_changes(resource), request.api_key == _ALTER_CONFIGS, body.validate_only
                )
                if resource_type is ConfigResourceType.TOPIC:
                    overrides = checked_topic_config(broker, change)
                    if not change.validate_only:
                        topic_overrides[name] = overrides
                        topic_positions.append(len(errors))
                else:
                    await _alter_resource(broker, resource_type, change, time_slice)
                errors.append(None)
            except BrokerError as error:
                errors.append(error)
        if topic_overrides:
            topic_errors = await apply_topic_configs(broker, topic_overrides, time_slice)
            for position, topic_error in zip(topic_positions, topic_errors, strict=True):
                errors[position] = topic_error
    return errors


def _property_changes(resource: Any) -> list[PropertyChange]:
    changes = []
    for config in resource.configs:
        operation = getattr(config, "config_operation", ConfigOperation.SET)  # AlterConfigs has no such field
        if operation not in ConfigOperation._value2member_map_:
            raise BrokerError(ErrorCode.invalid_request, f"Unknown operation {operation} for {config.name}")
        changes.append(PropertyChange(config.name, ConfigOperation(operation), config.value))
    return changes


async def _alter_resource(
    broker: Broker, resource_type: ConfigResourceType, change: ResourceChange, time_slice: TimeSlice
) -> None:
    """Check and apply a change to any resource except a topic. Raises BrokerError."""
    if resource_type is ConfigResourceType.BROKER_LOGGER:
        require_this_broker(broker, change.name)
        if change.replaces_all:
            raise BrokerError(ErrorCode.invalid_request, f"Unsupported resource type {resource_type.name}")
        levels = requested_levels(change.properties)
        if not change.validate_only:
            set_levels(levels)
    elif resource_type is ConfigResourceType.BROKER:
        await alter_broker_config(broker, change, time_slice)
    elif resource_type is ConfigResourceType.GROUP:
        await alter_group_config(broker, change)
    else:
        await alter_client_metrics(broker, change)
