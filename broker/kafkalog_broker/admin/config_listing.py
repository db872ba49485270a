"""The configuration of a resource, entry by entry, as DescribeConfigs and CreateTopics give it back."""

from __future__ import annotations

import enum
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from kafkalog_broker.broker import Broker
from kafkalog_broker.config.definition import BROKER_PROPERTIES, TOPIC_PROPERTIES, Property, Source, format_value
from kafkalog_broker.config.dynamic_configs import CLIENT_METRICS
from kafkalog_broker.config.group_properties import (
    BROKERS_OWN,
    CLIENT_METRICS_PROPERTIES,
    GROUP_PROPERTIES,
    client_metrics_value,
)
from kafkalog_broker.config.listener_settings import listener_property
from kafkalog_broker.config.log_config import INTERNAL_SEGMENT_BYTES, LogConfig, topic_sources, topic_text
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import CLUSTER_NAME, REFUSALS, Operation, ResourceType
from kafkalog_broker.protocol.api_registry import Request
from kafkalog_broker.storage.topic import Topic, check_topic_name

ALL_BROKERS = ""


class ConfigResourceType(enum.IntEnum):
    """ConfigResource.Type."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def resource_type(number: int) -> ConfigResourceType | None:
    """None for a number that no release up to 4.3 knows."""
    return ConfigResourceType(number) if number in ConfigResourceType._value2member_map_ else None


def known_topic(broker: Broker, name: str, what: str = "") -> Topic:
    """Raises BrokerError: INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION with the text `what`."""
    topic = broker.topics.get(name)
    if topic is None:
        check_topic_name(name)
        raise BrokerError(ErrorCode.unknown_topic_or_partition, what or f"The topic '{name}' does not exist.")
    return topic


def check_broker(broker: Broker, name: str, *, kind: str = "Broker id", or_all: str = "") -> None:
    """Raises BrokerError (INVALID_REQUEST) for a name that is not this broker's."""
    try:
        node = int(name)
    except ValueError:
        raise BrokerError(ErrorCode.invalid_request, f"{kind} must be an integer, but it is: {name}") from None
    if node != broker.node_id:
        raise BrokerError(
            ErrorCode.invalid_request, f"Unexpected broker id, expected {broker.node_id}{or_all} but received {name}"
        )


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: int


class ConfigEntry(NamedTuple):
    """Property of a resource, as in DescribeConfigs responses. `synonyms`: its sources, the one that counts first."""

    name: str
    value: str | None
    config_source: int
    read_only: bool = False
    is_sensitive: bool = False
    config_type: int = 0  # unknown
    documentation: str | None = ""
    synonyms: tuple[Synonym, ...] = ()


def topic_entries(broker: Broker, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """All properties of a topic with these overrides. What internal.segment.bytes does to another is not shown."""
    shown = {name: text for name, text in overrides.items() if name != INTERNAL_SEGMENT_BYTES}
    config, effective = broker.config, LogConfig.of(broker.config, shown)
    return [
        _entry(entry, topic_text(config, effective, overrides, name), topic_sources(config, overrides, name))
        for name, entry in TOPIC_PROPERTIES.items()
        if not entry.internal or name in overrides
    ]


def broker_entries(broker: Broker) -> list[ConfigEntry]:
    """All properties of this broker, by name, then those of single listeners."""
    config = broker.config
    entries = [
        _entry(entry, config.text(name), config.sources(name), read_only=entry.read_only)
        for name, entry in sorted(BROKER_PROPERTIES.items())
        if not entry.internal or name in config.static
    ]
    for name in config.listener_properties():  # Kafka calls them read-only even where they can be changed
        entry, sources = replace(BROKER_PROPERTIES[listener_property(name) or ""], name=name), config.sources(name)
        entries.append(_entry(entry, entry.text_of(sources[0][1]), sources, read_only=True))
    return entries


def resource_entries(broker: Broker, kind: ConfigResourceType, name: str) -> list[ConfigEntry]:
    """Raises BrokerError for a resource that does not exist."""
    entries: list[ConfigEntry] = []
    if kind is ConfigResourceType.TOPIC:
        # Kafka gives no text here, other than in the AlterConfigs APIs.
        return topic_entries(broker, known_topic(broker, name, " ").configs)
    if kind is ConfigResourceType.BROKER:
        if name == ALL_BROKERS:  # nothing else is common to all than what was set for all
            return [
                _entry(entry, entry.text_of(text), [(property_name, text, Source.DYNAMIC_DEFAULT_BROKER)])
                for property_name, text in sorted(broker.config.dynamic_default.items())
                if (entry := BROKER_PROPERTIES.get(property_name)) is not None
            ]
        check_broker(broker, name, or_all=" or empty string,")
        return broker_entries(broker)
    if kind is ConfigResourceType.BROKER_LOGGER:
        check_broker(broker, name)
        for shown, logger in loggers().items():
            level = logging.getLogger(logger).getEffectiveLevel()
            name_of_level = next((name for name, least in _LEVELS.items() if level >= least), "TRACE")
            entries.append(ConfigEntry(shown, name_of_level, Source.DYNAMIC_LOGGER))
        return entries
    if kind is ConfigResourceType.GROUP:
        if not name:
            raise BrokerError(ErrorCode.invalid_request, "the name of the resource must not be empty")
        overrides = broker.dynamic_configs.of_group(name)
        for key, entry in GROUP_PROPERTIES.items():
            sources = [(key, overrides.get(key), Source.GROUP)] if key in overrides else []
            default = [(key, entry.default, Source.DEFAULT)]
            sources += broker.config.sources(BROKERS_OWN[key]) if key in BROKERS_OWN else default
            entries.append(_entry(entry, sources[0][1], sources))
        return entries
    if not name:
        raise BrokerError(ErrorCode.invalid_request, "Client metrics subscription name must not be empty")
    overrides = broker.dynamic_configs.of[CLIENT_METRICS].get(name, {})  # a subscription that there is not has them all
    for key, entry in CLIENT_METRICS_PROPERTIES.items():
        text = format_value(client_metrics_value(key, overrides))
        entries.append(_entry(entry, text, [(key, text, Source.CLIENT_METRICS)] if key in overrides else []))
    return entries


def _entry(
    entry: Property, text: str | None, sources: list[tuple[str, str | None, Source]], *, read_only: bool = False
) -> ConfigEntry:
    hides = entry.is_sensitive
    synonyms = tuple(Synonym(name, None if hides else value, int(source)) for name, value, source in sources)
    source, shown = synonyms[0].source if synonyms else int(Source.DEFAULT), None if hides else text
    return ConfigEntry(entry.name, shown, source, read_only, hides, int(entry.type), entry.doc, synonyms)


def check_rights(request: Request, operation: Operation, kind: ConfigResourceType, name: str) -> None:
    """Raises BrokerError with Kafka's text where the sender may not do that with the configuration of a resource."""
    own = {ConfigResourceType.TOPIC: ResourceType.TOPIC, ConfigResourceType.GROUP: ResourceType.GROUP}
    resource = own.get(kind, ResourceType.CLUSTER)
    if not request.may(operation, resource, CLUSTER_NAME if resource is ResourceType.CLUSTER else name):
        raise BrokerError(*REFUSALS[resource])


# Loggers, as Kafka's BROKER_LOGGER resource shows and sets them (KIP-412).

ROOT = "root"
_PACKAGES = ("kafkalog_broker", "kafkalog_spark")  # above all loggers of this project: modules log under their names
_LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG // 2,
}


def loggers() -> dict[str, str]:
    """Name for clients -> name of Python's logger: the root and those of this project that exist by now, packages too,
    whose levels hold for all modules in them, as in Log4j."""
    own = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in _PACKAGES]
    return {ROOT: "", **{name: name for name in sorted(own)}}


def check_level(name: str, level: str | None) -> int:
    """Raises BrokerError (INVALID_CONFIG) for an unknown logger or level."""
    if name not in loggers():
        raise BrokerError(ErrorCode.invalid_config, f"Logger {name} does not exist!")
    if level not in _LEVELS:
        raise BrokerError(
            ErrorCode.invalid_config,
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(_LEVELS)}",
        )
    return _LEVELS[level]


def set_level(name: str, level: int) -> None:
    """`level` NOTSET: as the logger above it."""
    logging.getLogger(loggers()[name]).setLevel(level)
