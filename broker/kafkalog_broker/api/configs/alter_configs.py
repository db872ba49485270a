"""Alter the configuration of resources; saved and in effect before the response.

33 AlterConfigs, versions 0 to 2: sets the given properties of a resource and removes all others. Deprecated; for
clients that do not know IncrementalAlterConfigs.
44 IncrementalAlterConfigs, versions 0 and 1: sets and removes single properties, and changes lists (KIP-339).
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.admin import config_changes
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response


@api(33, 0, 2)
@api(44, 0, 1)
async def alter_configs(request: Request, broker: Broker) -> Any:
    errors = await config_changes.alter_configs(request, broker)
    return build_response(request, responses=[
        {"error_code": ErrorCode.none if error is None else error.code,
         "error_message": None if error is None else error.what,
         "resource_type": resource.resource_type, "resource_name": resource.resource_name}
        for resource, error in zip(request.entity.resources, errors, strict=True)
    ])  # fmt: skip
