"""Configuration of topics, brokers, groups and client metrics subscriptions, and quotas.

32 DescribeConfigs, versions 1 to 4. v1: sources and synonyms; v3: types and documentation. Who asks for the same
properties of a resource more than once gets them once. (Kafka repeats them: 16 kB that name the broker 2,000 times are
an answer of 57 MB there.)

74 ListConfigResources, versions 0 and 1 (KIP-1142). v0 lists subscriptions to client metrics.
33 AlterConfigs, versions 0 to 2: a resource's properties are those in the request, all others are removed. Deprecated
for IncrementalAlterConfigs, which older clients do not know.
44 IncrementalAlterConfigs, versions 0 and 1: set, remove, append to and take from single properties (KIP-339).

Quotas of users, client ids and addresses, which kafka-configs.sh sets too:
48 DescribeClientQuotas, versions 0 and 1: the entities that a filter lets through, and their quotas.
49 AlterClientQuotas, versions 0 and 1: quotas set and removed; on disk before it is answered. Entities are altered one
by one, and refused one by one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from kafkalog_broker.admin.config_changes import alter_each
from kafkalog_broker.admin.config_listing import (
    ALL_BROKERS,
    ConfigEntry,
    ConfigResourceType,
    check_rights,
    resource_entries,
    resource_type,
)
from kafkalog_broker.broker import Broker
from kafkalog_broker.config.dynamic_configs import CLIENT_METRICS, GROUPS
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import TEXTS, Operation
from kafkalog_broker.protocol.api_registry import Layer, Request, api, on_error
from kafkalog_broker.protocol.entity_codec import array_writer
from kafkalog_broker.protocol.response_entity import respond, response_module
from kafkalog_broker.quotas.quota_alteration import QuotaOperation, alter
from kafkalog_broker.quotas.quota_filter import FilterComponent, matching_entities
from kafkalog_broker.quotas.throttling import throttled
from kafkalog_broker.runtime.fair_scheduling import TimeSlice

UNKNOWN_KIND = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)
MAX_RESPONSE_BYTES = 64 << 20
"""Bytes that a response may grow to; resources beyond are refused. A topic takes 3 kB, with all texts 20 kB."""

MAX_COMPONENTS = 100  # parts of a quota's entity that are read, and repeated in the response; Kafka has three types

Keys = frozenset[str]  # the properties asked for; none: all


class DescribedResource(NamedTuple):
    error_code: int
    error_message: str
    resource_type: int
    resource_name: str
    configs: bytes  # encoded by `array_writer`


@api(32, 1, 4)
async def describe_configs(request: Request, broker: Broker) -> Any:
    asked, turn = request.entity, TimeSlice()
    wanted: dict[tuple[int, str, Keys], None] = {}
    for resource in asked.resources:
        keys = frozenset(resource.configuration_keys or ())
        wanted[resource.resource_type, resource.resource_name, keys] = None
    texts = _Texts(request, broker)
    resources, size = [], 0
    async for number, name, keys in turn.spread(wanted):
        code, what, configs = ErrorCode.none, "", texts.nothing
        try:
            if size > MAX_RESPONSE_BYTES:
                raise BrokerError(ErrorCode.policy_violation, "The answer is too large: ask for fewer resources.")
            kind = resource_type(number)
            if kind is None:
                raise BrokerError(ErrorCode.invalid_request, UNKNOWN_KIND)
            check_rights(request, Operation.DESCRIBE_CONFIGS, kind, name)
            configs = texts.of(kind, name, keys)
            size += len(configs)
        except BrokerError as error:
            code, what = error.code, error.what.strip()
        resources.append(DescribedResource(code, what, number, name, configs))
    return respond(request, results=resources)


class _Texts:
    """The encoded properties of resources. What they have in common is looked up and encoded once."""

    def __init__(self, request: Request, broker: Broker) -> None:
        asked = request.entity
        self._version = request.version
        self._write = array_writer(response_module(request).DescribeConfigsResult, "configs")
        self._synonyms = asked.include_synonyms
        self._documentation = getattr(asked, "include_documentation", False)
        self._broker = broker
        self._made: dict[Any, bytes] = {}
        self._entries: dict[Any, list[ConfigEntry]] = {}
        config, kept = broker.described
        if config is not broker.config:
            kept = {}
            broker.described = (broker.config, kept)
        # The encoded properties that do not depend on a request: of the broker, of topics without overrides.
        self._kept: dict[Any, bytes] = kept
        self.nothing = self._written(())

    def of(self, kind: ConfigResourceType, name: str, keys: Keys) -> bytes:
        """Raises BrokerError for a resource that does not exist."""
        topic = self._broker.topics.get(name) if kind is ConfigResourceType.TOPIC else None
        is_broker = kind is ConfigResourceType.BROKER and name in (ALL_BROKERS, str(self._broker.node_id))
        if topic is None and not is_broker:
            return self._encoded(kind, name, keys, (kind, name))
        overrides: Mapping[str, str] = {} if topic is None else topic.configs
        what = name if is_broker else tuple(overrides.items())
        key = (kind, what, keys, self._version, self._synonyms, self._documentation)
        kept = self._kept if not keys and not overrides else self._made
        found = kept.get(key)
        if found is None:
            found = kept[key] = self._encoded(kind, name, keys, (kind, what))
        return found

    def _encoded(self, kind: ConfigResourceType, name: str, keys: Keys, like: Any) -> bytes:
        entries = self._entries.get(like)
        if entries is None:
            entries = self._entries[like] = resource_entries(self._broker, kind, name)
        left_out: dict[str, Any] = {} if self._synonyms else {"synonyms": ()}
        if not self._documentation:
            left_out["documentation"] = None
        # Names that do not exist are passed over, as in Kafka.
        return self._written([entry._replace(**left_out) for entry in entries if not keys or entry.name in keys])

    def _written(self, entries: Sequence[ConfigEntry]) -> bytes:
        return b"".join(self._write(entries, bytearray()))


@api(74, 0, 1)
async def list_config_resources(request: Request, broker: Broker) -> Any:
    numbers = list(request.entity.resource_types) if request.version >= 1 else [ConfigResourceType.CLIENT_METRICS]
    kinds = {resource_type(number) for number in numbers or ConfigResourceType}
    if None in kinds:
        return respond(request, error_code=ErrorCode.unsupported_version, config_resources=())
    node = str(broker.node_id)
    found: dict[ConfigResourceType, Iterable[str]] = {
        ConfigResourceType.BROKER_LOGGER: [node],
        ConfigResourceType.BROKER: [node],
        ConfigResourceType.TOPIC: (topic.name for topic in broker.topics),
        ConfigResourceType.GROUP: broker.dynamic_configs.of[GROUPS],
        ConfigResourceType.CLIENT_METRICS: broker.dynamic_configs.of[CLIENT_METRICS],
    }
    return respond(request, config_resources=[
        {"resource_name": name, "resource_type": int(kind)}
        for kind, names in found.items() if kind in kinds for name in names
    ])  # fmt: skip


@api(33, 0, 2)
@api(44, 0, 1)
async def alter_configs(request: Request, broker: Broker) -> Any:
    outcomes = await alter_each(request, broker)
    return respond(request, responses=[
        {"error_code": code, "error_message": what, "resource_type": resource.resource_type,
         "resource_name": resource.resource_name}
        for resource, (code, what) in zip(request.entity.resources, outcomes, strict=True)
    ])  # fmt: skip


# ---- quotas

_logger = logging.getLogger(__name__)
_LOGGED = 30  # entities that a line of the log names


@api(48, 0, 1)
async def describe_client_quotas(request: Request, broker: Broker) -> Any:
    asked, turn = request.entity, TimeSlice()
    quotas = dict(broker.quotas.quotas)  # they may be altered between two steps
    components = [FilterComponent(one.entity_type, one.match_type, one.match) for one in asked.components]
    try:
        found = await broker.run_computing(matching_entities, quotas, components, strict=asked.strict)
    except BrokerError as error:
        return respond(request, error_code=error.code, error_message=error.what, entries=None)
    entries = []
    async for whose in turn.spread(found):
        set_to = quotas[whose]
        values = [{"key": key, "value": set_to[key]} for key in whose.keys if key in set_to]
        entries.append({"entity": _entity_parts(whose.named()), "values": values})
    return respond(request, error_message="", entries=entries)


@on_error(48)
def describe_client_quotas_failed(request: Request, code: ErrorCode) -> Any:
    text = None if code in TEXTS else code.name  # as Kafka
    return respond(request, error_code=code, error_message=text, entries=None)


@api(49, 0, 1)
async def alter_client_quotas(request: Request, broker: Broker) -> Any:
    asked, turn = request.entity, TimeSlice()
    answers, done = [], {}
    async with broker.altering:
        quotas = dict(broker.quotas.quotas)
        async for entry in turn.spread(asked.entries):
            named = [(one.entity_type, one.entity_name) for one in entry.entity[:MAX_COMPONENTS]]
            code, text = ErrorCode.none, None
            try:
                if len(entry.entity) > MAX_COMPONENTS:
                    what = f"An entity has {len(entry.entity)} components, at most {MAX_COMPONENTS} are read."
                    raise BrokerError(ErrorCode.invalid_request, what)
                operations = [QuotaOperation(one.key, None if one.remove else float(one.value)) for one in entry.ops]
                whose, values = alter(quotas, named, operations)
                if not asked.validate_only:
                    quotas[whose] = done[whose] = values
            except BrokerError as error:
                code, text = error.code, error.what
            answers.append({"error_code": code, "error_message": text, "entity": _entity_parts(dict(named))})
        if done:
            await broker.save("quotas", broker.quota_file.save, quotas)
            async for whose, values in turn.spread(done.items()):
                broker.quotas.change(whose, values)
            keep_to_quotas(broker)
            named_first = [whose.named() for whose in islice(done, _LOGGED)]
            _logger.info("the quotas of %d entities are changed: %.1000r", len(done), named_first)
    return respond(request, entries=answers)


@on_error(49)
def alter_client_quotas_failed(request: Request, code: ErrorCode) -> Any:
    """Each entry is refused, with the parts of its entity."""
    answers = []
    for entry in request.entity.entries:
        parts = _entity_parts({one.entity_type: one.entity_name for one in entry.entity[:MAX_COMPONENTS]})
        answers.append({"error_code": code, "error_message": TEXTS.get(code), "entity": parts})
    return respond(request, entries=answers)


def _entity_parts(named: Mapping[str, str | None]) -> list[dict[str, Any]]:
    """Parts of an entity in Kafka's order: client-id before user."""
    return [{"entity_type": kind, "entity_name": named[kind]} for kind in sorted(named)]


def keep_to_quotas(broker: Broker) -> None:
    """Wrap the handlers with the quotas, or unwrap them while there are none."""
    broker.apis.wrap(Layer.QUOTAS, partial(throttled, broker.quotas) if broker.quotas.in_use else None)
