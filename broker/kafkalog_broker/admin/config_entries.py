"""Properties of a resource with their values and sources, as DescribeConfigs and CreateTopics list them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from kafkalog_broker.admin.config_resources import ALL_BROKERS, ConfigResourceType, require_this_broker, require_topic
from kafkalog_broker.admin.logger_levels import effective_level_name, loggers
from kafkalog_broker.broker import Broker
from kafkalog_broker.config.client_metrics_properties import CLIENT_METRICS_PROPERTIES, client_metrics_value
from kafkalog_broker.config.definition import Property, Source, SourcedValue, format_value
from kafkalog_broker.config.dynamic_configs import CLIENT_METRICS
from kafkalog_broker.config.group_properties import BROKER_DEFAULTS_OF_GROUPS, GROUP_PROPERTIES
from kafkalog_broker.config.listener_security import listener_property
from kafkalog_broker.config.log_config import INTERNAL_SEGMENT_BYTES, LogConfig, topic_sources, topic_text
from kafkalog_broker.config.property_list import BROKER_PROPERTIES, TOPIC_PROPERTIES
from kafkalog_broker.errors import BrokerError, ErrorCode


class Synonym(NamedTuple):
    """A property and its value in one source. Field names are those of the protocol."""

    name: str
    value: str | None
    source: int


class ConfigEntry(NamedTuple):
    """A property as it is encoded in DescribeConfigs responses.

    `synonyms` lists the sources of the value, the one in effect first.
    """

    name: str
    value: str | None
    config_source: int
    read_only: bool = False
    is_sensitive: bool = False
    config_type: int = 0  # unknown
    documentation: str | None = ""
    synonyms: tuple[Synonym, ...] = ()


def resource_entries(broker: Broker, resource_type: ConfigResourceType, name: str) -> list[ConfigEntry]:
    """Return all properties of a resource. Raises BrokerError if the resource does not exist."""
    if resource_type is ConfigResourceType.TOPIC:
        # DescribeConfigs has no error message for a missing topic; an empty one would become the name of the code.
        return topic_entries(broker, require_topic(broker, name, " ").configs)
    if resource_type is ConfigResourceType.BROKER:
        if name == ALL_BROKERS:
            return _all_brokers_entries(broker)
        require_this_broker(broker, name, alternative=" or empty string,")
        return broker_entries(broker)
    if resource_type is ConfigResourceType.BROKER_LOGGER:
        require_this_broker(broker, name)
        return [
            ConfigEntry(shown, effective_level_name(logger), Source.DYNAMIC_LOGGER)
            for shown, logger in loggers().items()
        ]
    if resource_type is ConfigResourceType.GROUP:
        return _group_entries(broker, name)
    return _client_metrics_entries(broker, name)


def topic_entries(broker: Broker, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Return all properties of a topic with these overrides.

    internal.segment.bytes replaces segment.bytes in effect, but segment.bytes is listed without it, as in Kafka.
    """
    shown = {name: text for name, text in overrides.items() if name != INTERNAL_SEGMENT_BYTES}
    config = broker.config
    effective = LogConfig.of(broker.config, shown)
    return [
        _entry(definition, topic_text(config, effective, overrides, name), topic_sources(config, overrides, name))
        for name, definition in TOPIC_PROPERTIES.items()
        if not definition.internal or name in overrides
    ]


def broker_entries(broker: Broker) -> list[ConfigEntry]:
    """Return all properties of this broker by name, followed by the properties of single listeners."""
    config = broker.config
    entries = [
        _entry(definition, config.text(name), config.sources(name), read_only=definition.read_only)
        for name, definition in sorted(BROKER_PROPERTIES.items())
        if not definition.internal or name in config.static
    ]
    for name in config.listener_properties():
        definition = replace(BROKER_PROPERTIES[listener_property(name) or ""], name=name)
        sources = config.sources(name)
        # As in Kafka, they are listed as read-only even if they can be altered.
        entries.append(_entry(definition, definition.text_of(sources[0].text), sources, read_only=True))
    return entries


def _all_brokers_entries(broker: Broker) -> list[ConfigEntry]:
    """Return the overrides that were set for all brokers; brokers share no other configuration."""
    return [
        _entry(definition, definition.text_of(text), [SourcedValue(name, text, Source.DYNAMIC_DEFAULT_BROKER)])
        for name, text in sorted(broker.config.dynamic_default.items())
        if (definition := BROKER_PROPERTIES.get(name)) is not None
    ]


def _group_entries(broker: Broker, name: str) -> list[ConfigEntry]:
    if not name:
        raise BrokerError(ErrorCode.invalid_request, "the name of the resource must not be empty")
    overrides = broker.dynamic_configs.group_overrides(name)
    entries = []
    for key, definition in GROUP_PROPERTIES.items():
        sources = [SourcedValue(key, overrides[key], Source.GROUP)] if key in overrides else []
        if key in BROKER_DEFAULTS_OF_GROUPS:
            sources += broker.config.sources(BROKER_DEFAULTS_OF_GROUPS[key])
        else:
            sources.append(SourcedValue(key, definition.default, Source.DEFAULT))
        entries.append(_entry(definition, sources[0].text, sources))
    return entries


def _client_metrics_entries(broker: Broker, name: str) -> list[ConfigEntry]:
    """Return the properties of a subscription. One that does not exist has all defaults, as in Kafka."""
    if not name:
        raise BrokerError(ErrorCode.invalid_request, "Client metrics subscription name must not be empty")
    overrides = broker.dynamic_configs.resources[CLIENT_METRICS].get(name, {})
    entries = []
    for key, definition in CLIENT_METRICS_PROPERTIES.items():
        text = format_value(client_metrics_value(key, overrides))
        sources = [SourcedValue(key, text, Source.CLIENT_METRICS)] if key in overrides else []
        entries.append(_entry(definition, text, sources))
    return entries


def _entry(
    definition: Property, text: str | None, sources: list[SourcedValue], *, read_only: bool = False
) -> ConfigEntry:
    hidden = definition.is_sensitive
    synonyms = tuple(Synonym(name, None if hidden else value, int(source)) for name, value, source in sources)
    source = synonyms[0].source if synonyms else int(Source.DEFAULT)
    return ConfigEntry(
        definition.name,
        None if hidden else text,
        source,
        read_only,
        hidden,
        int(definition.type),
        definition.doc,
        synonyms,
    )
