"""32 DescribeConfigs, versions 1 to 4: the properties of topics, brokers, groups, loggers and metrics subscriptions.

v1  sources and synonyms
v3  types and documentation

If a request names a resource with the same properties more than once, the response has it once. Kafka repeats it: a
request of 16 kB that names the broker 2,000 times gets 57 MB.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from kafkalog_broker.admin.config_entries import ConfigEntry, resource_entries
from kafkalog_broker.admin.config_resources import (
    ALL_BROKERS,
    ConfigResourceType,
    authorize_config,
    known_resource_type,
)
from kafkalog_broker.api.error_responses import INVALID_REQUEST_MESSAGE
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import Operation
from kafkalog_broker.protocol.api_messages import array_writer
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response, response_structs
from kafkalog_broker.runtime.fair_scheduling import TimeSlice

MAX_RESPONSE_BYTES = 64 << 20
"""Once the properties in a response exceed this size, the remaining resources are refused. A topic takes 3 kB, or 20 kB
with documentation."""

Keys = frozenset[str]
"""Names of the requested properties; empty for all."""


class DescribedResource(NamedTuple):
    """A result of the response, with encoded properties. Field names are those of the protocol."""

    error_code: int
    error_message: str
    resource_type: int
    resource_name: str
    configs: bytes


@api(32, 1, 4)
async def describe_configs(request: Request, broker: Broker) -> Any:
    time_slice = TimeSlice()
    resources: dict[tuple[int, str, Keys], None] = {}
    for resource in request.entity.resources:
        keys = frozenset(resource.configuration_keys or ())
        resources[resource.resource_type, resource.resource_name, keys] = None
    encoder = _ConfigEncoder(request, broker)
    results = []
    size = 0
    async for number, name, keys in time_slice.spread(resources):
        code, message, configs = ErrorCode.none, "", encoder.no_properties
        try:
            if size > MAX_RESPONSE_BYTES:
                message = f"The response exceeds {MAX_RESPONSE_BYTES} bytes: describe fewer resources in a request."
                raise BrokerError(ErrorCode.policy_violation, message)
            resource_type = known_resource_type(number)
            if resource_type is None:
                raise BrokerError(ErrorCode.invalid_request, INVALID_REQUEST_MESSAGE)
            authorize_config(request, Operation.DESCRIBE_CONFIGS, resource_type, name)
            configs = encoder.properties(resource_type, name, keys)
            size += len(configs)
        except BrokerError as error:
            code, message = error.code, error.what.strip()
        results.append(DescribedResource(code, message, number, name, configs))
    return build_response(request, results=results)


class _ConfigEncoder:
    """Encodes the properties of the resources of one request. Equal properties are looked up and encoded once.

    The properties of this broker, and of topics without overrides, do not depend on the request. They are cached in
    `broker.config_descriptions` until the broker's configuration changes.
    """

    def __init__(self, request: Request, broker: Broker) -> None:
        body = request.entity
        self._broker = broker
        self._version = request.version
        self._with_synonyms = body.include_synonyms
        self._with_documentation = body.include_documentation
        self._write = array_writer(response_structs(request).DescribeConfigsResult, "configs")
        self._encoded: dict[Hashable, bytes] = {}
        self._entries: dict[Hashable, list[ConfigEntry]] = {}
        config, encoded = broker.config_descriptions
        if config is not broker.config:
            encoded = {}
            broker.config_descriptions = (broker.config, encoded)
        self._encoded_for_all_requests: dict[Any, bytes] = encoded
        self.no_properties = self._write_array(())

    def properties(self, resource_type: ConfigResourceType, name: str, keys: Keys) -> bytes:
        """Return the encoded array of properties. Raises BrokerError if the resource does not exist."""
        topic = self._broker.topics.get(name) if resource_type is ConfigResourceType.TOPIC else None
        is_broker = resource_type is ConfigResourceType.BROKER and name in (ALL_BROKERS, str(self._broker.node_id))
        if topic is None and not is_broker:
            return self._encode(resource_type, name, keys, entries_key=(resource_type, name))
        overrides: Mapping[str, str] = {} if topic is None else topic.configs
        configuration = name if is_broker else tuple(overrides.items())
        key = (resource_type, configuration, keys, self._version, self._with_synonyms, self._with_documentation)
        encoded = self._encoded if keys or overrides else self._encoded_for_all_requests
        configs = encoded.get(key)
        if configs is None:
            configs = encoded[key] = self._encode(resource_type, name, keys, entries_key=(resource_type, configuration))
        return configs

    def _encode(self, resource_type: ConfigResourceType, name: str, keys: Keys, entries_key: Hashable) -> bytes:
        entries = self._entries.get(entries_key)
        if entries is None:
            entries = self._entries[entries_key] = resource_entries(self._broker, resource_type, name)
        omitted: dict[str, Any] = {} if self._with_synonyms else {"synonyms": ()}
        if not self._with_documentation:
            omitted["documentation"] = None
        # As in Kafka, requested names that are no properties are ignored.
        return self._write_array([entry._replace(**omitted) for entry in entries if not keys or entry.name in keys])

    def _write_array(self, entries: Sequence[ConfigEntry]) -> bytes:
        return b"".join(self._write(entries, bytearray()))
