"""Quotas of users, client IDs and IP addresses, also set with kafka-configs.sh (KIP-546).

48 DescribeClientQuotas, versions 0 and 1: the entities that match a filter, and their quotas.
49 AlterClientQuotas, versions 0 and 1: sets and removes quotas; saved before the response. An entity that is refused
does not affect the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkalog_broker.admin.client_quotas import apply_quotas
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import DENIAL_MESSAGES
from kafkalog_broker.protocol.api_registry import api, on_error
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response
from kafkalog_broker.quotas.quota_alteration import QuotaOperation, alter_quotas
from kafkalog_broker.quotas.quota_entity import Entity
from kafkalog_broker.quotas.quota_filter import FilterComponent, matching_entities
from kafkalog_broker.runtime.fair_scheduling import TimeSlice

_MAX_COMPONENTS = 100
"""Components of an entity that are read from a request and repeated in the response. Kafka has three types of them."""


@api(48, 0, 1)
async def describe_client_quotas(request: Request, broker: Broker) -> Any:
    body = request.entity
    time_slice = TimeSlice()
    quotas = dict(broker.quotas.quotas)  # a copy, because quotas may be altered between two time slices
    components = [
        FilterComponent(component.entity_type, component.match_type, component.match) for component in body.components
    ]
    try:
        matching = await broker.run_computing(matching_entities, quotas, components, strict=body.strict)
    except BrokerError as error:
        return build_response(request, error_code=error.code, error_message=error.what, entries=None)
    entries = []
    async for entity in time_slice.spread(matching):
        values = quotas[entity]
        quota_structs = [{"key": key, "value": values[key]} for key in entity.keys if key in values]
        entries.append({"entity": _component_structs(entity.named()), "values": quota_structs})
    return build_response(request, error_message="", entries=entries)


@on_error(48)
def describe_client_quotas_error(request: Request, code: ErrorCode) -> Any:
    """Return the error response. As in Kafka, a denial has no message; other errors have the name of the code."""
    return build_response(
        request, error_code=code, error_message=None if code in DENIAL_MESSAGES else code.name, entries=None
    )


@api(49, 0, 1)
async def alter_client_quotas(request: Request, broker: Broker) -> Any:
    body = request.entity
    time_slice = TimeSlice()
    results: list[dict[str, Any]] = []
    changed: dict[Entity, dict[str, float]] = {}
    async with broker.alteration_lock:
        quotas: dict[Entity, Mapping[str, float]] = dict(broker.quotas.quotas)
        async for entry in time_slice.spread(body.entries):
            components = [
                (component.entity_type, component.entity_name) for component in entry.entity[:_MAX_COMPONENTS]
            ]
            code, message = ErrorCode.none, None
            try:
                if len(entry.entity) > _MAX_COMPONENTS:
                    message = f"An entity has {len(entry.entity)} components, at most {_MAX_COMPONENTS} are read."
                    raise BrokerError(ErrorCode.invalid_request, message)
                operations = [QuotaOperation(op.key, None if op.remove else float(op.value)) for op in entry.ops]
                entity, values = alter_quotas(quotas, components, operations)
                if not body.validate_only:
                    quotas[entity] = changed[entity] = values
            except BrokerError as error:
                code, message = error.code, error.what
            entity_structs = _component_structs(dict(components))
            results.append({"error_code": code, "error_message": message, "entity": entity_structs})
        if changed:
            await apply_quotas(broker, quotas, changed, time_slice)
    return build_response(request, entries=results)


@on_error(49)
def alter_client_quotas_error(request: Request, code: ErrorCode) -> Any:
    results = []
    for entry in request.entity.entries:
        names = {component.entity_type: component.entity_name for component in entry.entity[:_MAX_COMPONENTS]}
        results.append(
            {"error_code": code, "error_message": DENIAL_MESSAGES.get(code), "entity": _component_structs(names)}
        )
    return build_response(request, entries=results)


def _component_structs(names: Mapping[str, str | None]) -> list[dict[str, Any]]:
    """Return the components of an entity, given as type and name, in Kafka's order: client-id before user."""
    return [{"entity_type": entity_type, "entity_name": names[entity_type]} for entity_type in sorted(names)]
