"""The configuration of one topic's logs: the topic's own properties on top of the broker's defaults (LogConfig)."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from broker.config.broker_config import BrokerConfig
from broker.config.definition import ConfigError, Source, Value, format_value
from broker.config.topic_properties import BROKER_DEFAULTS, TOPIC_PROPERTIES

INTERNAL_SEGMENT_BYTES = "internal.segment.bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Attributes are the topic properties of Kafka in snake_case. Times in ms, sizes in bytes as their names say;
    -1 is "no limit" in retention_ms and retention_bytes."""

    cleanup_policy: tuple[str, ...]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    follower_replication_throttled_replicas: tuple[str, ...]
    index_interval_bytes: int
    leader_replication_throttled_replicas: tuple[str, ...]
    local_retention_bytes: int
    local_retention_ms: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    remote_log_copy_disable: bool
    remote_log_delete_on_disable: bool
    remote_storage_enable: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool

    @classmethod
    def of(cls, broker_config: BrokerConfig, topic_overrides: Mapping[str, str] | None = None) -> Self:
        """Raises ConfigError for an unknown property, a value that is not allowed, or values that contradict."""
        overrides = topic_overrides or {}
        values: dict[str, Any] = {entry: default(broker_config) for entry, default in _defaults()}
        for name, text in overrides.items():
            if name not in TOPIC_PROPERTIES:
                raise ConfigError(f"Unknown topic config name: {name[:200]}", name=name)
            value = TOPIC_PROPERTIES[name].parse(text)
            if name != "segment.bytes" or INTERNAL_SEGMENT_BYTES not in overrides:
                values[_attribute(name)] = value
        made = cls(**values)
        made._check_together()
        return made

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """Whether retention by time and size applies."""
        return "delete" in self.cleanup_policy

    def _check_together(self) -> None:
        """Rules between properties (LogConfig.validateValues)."""
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise ConfigError(
                f"conflict topic config setting min.compaction.lag.ms ({self.min_compaction_lag_ms}) > "
                f"max.compaction.lag.ms ({self.max_compaction_lag_ms})",
                name="min.compaction.lag.ms",
            )
        if self.remote_storage_enable:
            raise ConfigError(
                "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log "
                "storage.",
                name="remote.storage.enable",
            )


def topic_sources(
    broker_config: BrokerConfig, topic_overrides: Mapping[str, str], name: str
) -> list[tuple[str, str | None, Source]]:
    """As BrokerConfig.sources, for a topic property: the topic's own value, then those of its broker property."""
    found: list[tuple[str, str | None, Source]] = []
    if name in topic_overrides:
        found.append((name, topic_overrides[name], Source.TOPIC))
    if name in BROKER_DEFAULTS:
        found += broker_config.sources(BROKER_DEFAULTS[name])
    return found


def topic_text(config: LogConfig, topic_overrides: Mapping[str, str], name: str) -> str | None:
    """The effective value of a topic property, as text."""
    if name in topic_overrides:
        return TOPIC_PROPERTIES[name].text_of(topic_overrides[name])
    return format_value(getattr(config, _attribute(name)))


def _attribute(name: str) -> str:
    """internal.segment.bytes takes the place of segment.bytes, for tests with small segments."""
    return "segment_bytes" if name == INTERNAL_SEGMENT_BYTES else name.replace(".", "_")


@functools.cache
def _defaults() -> tuple[tuple[str, Callable[[BrokerConfig], Any]], ...]:
    """Attribute of LogConfig -> what gives its default: an attribute of BrokerConfig, or the property's own default."""
    found: list[tuple[str, Callable[[BrokerConfig], Any]]] = []
    known = {entry.name for entry in fields(BrokerConfig)}
    for name, entry in TOPIC_PROPERTIES.items():
        if name == INTERNAL_SEGMENT_BYTES:
            continue
        attribute = BROKER_DEFAULTS.get(name, "").replace(".", "_")
        if attribute in known:
            found.append((_attribute(name), operator.attrgetter(attribute)))
        else:  # tiered storage and throttling: no broker property that this broker acts on
            value = entry.default_value()
            found.append((_attribute(name), functools.partial(_constant, value)))
    return tuple(found)


def _constant(value: Value, _config: BrokerConfig) -> Value:
    return value
