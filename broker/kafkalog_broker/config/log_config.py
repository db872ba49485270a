"""The configuration of one topic's logs: overrides of the topic on top of the broker's defaults (Kafka: LogConfig)."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.definition import ConfigError, Source, SourcedValue, format_value
from kafkalog_broker.config.property_list import BROKER_DEFAULTS, TOPIC_PROPERTIES
from kafkalog_broker.config.remote_storage_settings import AS_RETENTION, REMOTE_STORAGE, check_local_retention

INTERNAL_SEGMENT_BYTES = "internal.segment.bytes"
MAX_INDEX_ENTRY_BYTES = 1 << 20
REMOTE_STORAGE_ENABLE = "remote.storage.enable"
_NAMES_SHOWN = 20  # largest number of topics that an error names


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Values of the topic properties that this broker acts on. A retention of -1 is unlimited."""

    cleanup_policy: tuple[str, ...]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    index_interval_bytes: int
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

    @classmethod
    def of(cls, broker_config: BrokerConfig, topic_overrides: Mapping[str, str] | None = None) -> Self:
        """Make the configuration of a topic.

        Args:
            broker_config: Configuration of the broker.
            topic_overrides: The topic's own properties as text.

        Raises:
            ConfigError: If a property is unknown, a value is invalid, or values contradict each other.
        """
        overrides = topic_overrides or {}
        values: dict[str, Any] = {entry: default(broker_config) for entry, default in _defaults()}
        for name, text in overrides.items():
            if name not in TOPIC_PROPERTIES:
                raise ConfigError(f"Unknown topic config name: {name[:200]}", name=name)
            value = TOPIC_PROPERTIES[name].parse(text)
            if name == REMOTE_STORAGE_ENABLE and value and not broker_config.remote_log_storage_system_enable:
                raise ConfigError(
                    "Tiered Storage functionality is disabled in the broker. "
                    "Topic cannot be configured with remote log storage.",
                    name=name,
                )
            is_replaced = name == "segment.bytes" and INTERNAL_SEGMENT_BYTES in overrides
            if name in served_topic_properties() and not is_replaced:
                values[_attribute(name)] = value
        config = cls(**values)
        config._check_together()
        return config

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes_by_retention(self) -> bool:
        """True if retention by time and size applies."""
        return "delete" in self.cleanup_policy

    @property
    def limits_local_log(self) -> bool:
        """True if retention by time and size removes local segments (UnifiedLog.deleteOldSegments).

        With an empty cleanup.policy it does if segments are copied to remote storage.
        """
        return self.deletes_by_retention or (not self.cleanup_policy and self.copies_segments)

    @property
    def copies_segments(self) -> bool:
        """True if closed segments are copied to remote storage and local retention then deletes them from the disk.

        In Kafka: UnifiedLog.remoteLogEnabledAndRemoteCopyEnabled.
        """
        return self.remote_storage_enable and not self.remote_log_copy_disable

    @property
    def local_limits(self) -> tuple[int, int]:
        """Limits of the local log in bytes and ms; negative for no limit."""
        size, age = self.retention_bytes, self.retention_ms
        if self.copies_segments:
            size = size if self.local_retention_bytes == AS_RETENTION else self.local_retention_bytes
            age = age if self.local_retention_ms == AS_RETENTION else self.local_retention_ms
        return size, age

    @property
    def max_segment_ms(self) -> int:
        """Age in ms at which the active segment is rolled (LogConfig.maxSegmentMs).

        max.compaction.lag.ms lowers it, because the cleaner does not compact the active segment.
        """
        # The cheapest check comes first, because every append calls this.
        if 0 < self.max_compaction_lag_ms < self.segment_ms and self.is_compacted:
            return self.max_compaction_lag_ms
        return self.segment_ms

    @property
    def index_entry_bytes(self) -> int:
        """index.interval.bytes, limited to 1 MB, because a look-up reads that many bytes while other requests wait.

        Kafka allows up to 2 GB.
        """
        return min(self.index_interval_bytes, MAX_INDEX_ENTRY_BYTES)

    def _check_together(self) -> None:
        """Raise ConfigError if properties contradict each other (LogConfig.validateValues)."""
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise ConfigError(
                f"conflict topic config setting min.compaction.lag.ms ({self.min_compaction_lag_ms}) > "
                f"max.compaction.lag.ms ({self.max_compaction_lag_ms})",
                name="min.compaction.lag.ms",
            )

    def check_remote_storage(self) -> None:
        """Check the rules of remote storage when a topic is created or altered. Raises ConfigError."""
        if not self.remote_storage_enable:
            return
        if self.cleanup_policy not in ((), ("delete",)):
            raise ConfigError(
                "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty "
                "list.",
                name="cleanup.policy",
            )
        limits = (
            ("retention.bytes", self.retention_bytes, self.local_retention_bytes),
            ("retention.ms", self.retention_ms, self.local_retention_ms),
        )
        for limit in limits:
            check_local_retention(*limit)
        for name, total, local in limits:
            if self.remote_log_copy_disable and local not in (AS_RETENTION, total):
                raise ConfigError(
                    f"When `remote.log.copy.disable` is set to true, the `local.{name}` and `{name}` must be set to "
                    "the identical value because there will be no more logs copied to the remote storage.",
                    name=f"local.{name}",
                )


def check_remote_storage_stays(before: LogConfig, after: LogConfig) -> None:
    """Raise ConfigError if remote storage is disabled for a topic without deleting its remote data.

    In Kafka: LogConfig.validateTurningOffRemoteStorageWithDelete.
    """
    if before.remote_storage_enable and not after.remote_storage_enable and not after.remote_log_delete_on_disable:
        raise ConfigError(
            "It is invalid to disable remote storage without deleting remote data. If you want to keep the remote data "
            "and turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. If you want "
            "to disable remote storage and delete all remote data, please set "
            "`remote.storage.enable=false,remote.log.delete.on.disable=true`.",
            name=REMOTE_STORAGE_ENABLE,
        )


def is_tiered(overrides: Mapping[str, str]) -> bool:
    """Return True if a topic with these overrides has remote storage, even if the broker has it disabled."""
    return overrides.get(REMOTE_STORAGE_ENABLE, "").strip().lower() == "true"


def check_remote_storage_enabled(broker_config: BrokerConfig, topics: Mapping[str, Mapping[str, str]]) -> None:
    """Raise ConfigError at the start if topics have remote storage, but the broker has it disabled.

    In Kafka: LogConfig.validateRemoteStorageOnlyIfSystemEnabled.

    Args:
        broker_config: Configuration of the broker.
        topics: Overrides by topic name.
    """
    if broker_config.remote_log_storage_system_enable:
        return
    names = sorted(name for name, overrides in topics.items() if is_tiered(overrides))
    if names:
        more = len(names) - _NAMES_SHOWN
        shown = ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
        raise ConfigError(
            "You have to delete all topics with the property remote.storage.enable=true before disabling tiered "
            f"storage cluster-wide: {shown}",
            name=REMOTE_STORAGE,
            hint=f"to keep them, set {REMOTE_STORAGE}=true and the previous properties of remote storage",
        )


@functools.cache
def served_topic_properties() -> frozenset[str]:
    """Return the topic properties that this broker acts on. Others are validated, stored and described only."""
    attributes = {entry.name for entry in fields(LogConfig)}
    return frozenset(name for name in TOPIC_PROPERTIES if _attribute(name) in attributes)


def topic_sources(broker_config: BrokerConfig, topic_overrides: Mapping[str, str], name: str) -> list[SourcedValue]:
    """Return the sources of a topic property: its override, then those of the broker property that is its default."""
    override_sources = [SourcedValue(name, topic_overrides[name], Source.TOPIC)] if name in topic_overrides else []
    return override_sources + (broker_config.sources(BROKER_DEFAULTS[name]) if name in BROKER_DEFAULTS else [])


def topic_text(
    broker_config: BrokerConfig, config: LogConfig, topic_overrides: Mapping[str, str], name: str
) -> str | None:
    """Return the effective value of a topic property as text. `config` is made from the two other arguments."""
    if name in topic_overrides:
        return TOPIC_PROPERTIES[name].text_of(topic_overrides[name])
    if name in served_topic_properties():
        return format_value(getattr(config, _attribute(name)))
    return broker_config.text(BROKER_DEFAULTS[name]) if name in BROKER_DEFAULTS else TOPIC_PROPERTIES[name].default


def _attribute(name: str) -> str:
    """Return the attribute of a property. internal.segment.bytes, for small segments in tests, replaces
    segment.bytes."""
    return "segment_bytes" if name == INTERNAL_SEGMENT_BYTES else name.replace(".", "_")


@functools.cache
def _defaults() -> tuple[tuple[str, Callable[[BrokerConfig], Any]], ...]:
    """Return the attributes of LogConfig, each with a function from a BrokerConfig to its default."""

    def default(name: str) -> Callable[[BrokerConfig], Any]:
        if name in BROKER_DEFAULTS:
            return operator.attrgetter(BROKER_DEFAULTS[name].replace(".", "_"))
        value = TOPIC_PROPERTIES[name].parse(TOPIC_PROPERTIES[name].default)
        return lambda _: value

    names = served_topic_properties() - {INTERNAL_SEGMENT_BYTES}
    return tuple((_attribute(name), default(name)) for name in sorted(names))
