"""32 DescribeConfigs, versions 1 to 4. v1: sources and synonyms; v3: types and documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.admin.config_listing import ConfigEntry, chosen, resource_entries
from broker.admin.resources import resource_type
from broker.errors import BrokerError, ErrorCode
from broker.protocol.api_registry import Request, api
from broker.protocol.response_entity import entity, response_module

UNKNOWN_KIND = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)

if TYPE_CHECKING:
    from broker.server import Broker


@api(32, 1, 4)
async def handle(request: Request, broker: Broker) -> Any:
    asked = request.entity
    module = response_module(request)
    results = []
    for resource in asked.resources:
        code, what, entries = ErrorCode.none, "", list[ConfigEntry]()
        try:
            kind = resource_type(resource.resource_type)
            if kind is None:
                raise BrokerError(ErrorCode.invalid_request, UNKNOWN_KIND)
            entries = resource_entries(broker, kind, resource.resource_name)
        except BrokerError as error:
            code, what = error.code, error.what.strip()
        results.append(
            entity(
                module.DescribeConfigsResult,
                error_code=code,
                error_message=what,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=tuple(_entry(module, entry, asked) for entry in chosen(entries, resource.configuration_keys)),
            )
        )
    return entity(module.DescribeConfigsResponse, results=tuple(results))


def _entry(module: Any, entry: ConfigEntry, asked: Any) -> Any:
    synonyms = entry.synonyms if asked.include_synonyms else ()
    return entity(
        module.DescribeConfigsResourceResult,
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=tuple(
            entity(module.DescribeConfigsSynonym, name=name, value=value, source=source)
            for name, value, source in synonyms
        ),
        config_type=entry.type,
        documentation=entry.doc if getattr(asked, "include_documentation", False) else None,
    )
