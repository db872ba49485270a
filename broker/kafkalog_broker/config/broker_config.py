"""The broker's configuration: typed values of Kafka's properties.

The properties come from server.properties, the command line and dynamic changes.

    config = BrokerConfig.from_properties({"log.dirs": "/data", "log.retention.hours": "24"})
    config.log_retention_ms            # 86_400_000: converted from hours
    config.num_partitions              # 1, Kafka's default
    config.text("log.retention.hours") # "24"
    config.sources("num.partitions")   # [("num.partitions", "1", Source.DEFAULT)]

The first of four layers that has a property determines its value:

1. properties that were set for this broker while it ran,
2. properties that were set for all brokers while they ran,
3. properties of the start,
4. Kafka's defaults.

A BrokerConfig is immutable; a change of dynamic properties makes a new one (`with_dynamic`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from kafkalog_broker.config.authorizer_settings import AUTHORIZER_PROPERTIES, AuthorizerSettings
from kafkalog_broker.config.broker_config_checks import check_together
from kafkalog_broker.config.combined_properties import CONTRIBUTING_PROPERTIES, combined_properties
from kafkalog_broker.config.definition import ConfigError, Source, SourcedValue
from kafkalog_broker.config.listener_security import (
    LISTENER_PROPERTIES,
    ListenerSecurity,
    listener_property,
)
from kafkalog_broker.config.listeners import Listener
from kafkalog_broker.config.property_list import BROKER_PROPERTIES, first_value
from kafkalog_broker.config.property_names import check_text, is_dangerous, unknown_names, unknown_property
from kafkalog_broker.config.property_relatives import listed_relatives, relatives
from kafkalog_broker.config.refused_properties import REFUSED
from kafkalog_broker.config.remote_storage_settings import MetadataTopic, plugin_prefixes

DEFAULT_NODE_ID = "1"  # Kafka has no default; the only broker of a cluster needs no particular ID
MIN_ISR = "min.insync.replicas"
"""Property that is always set for all brokers, as Kafka's controller sets it when it forms a cluster (KIP-966)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Values of all properties that this broker acts on. Attributes have Kafka's names in snake_case.

    Only properties that the code reads may be attributes, because `without_effect` reports all others. A test checks
    this.

    Attributes:
        static: Properties that were set at the start, as text.
        dynamic_default: Properties that were set for all brokers while they ran, as text.
        dynamic_broker: Properties that were set for this broker while it ran, as text.
    """

    static: Mapping[str, str] = field(repr=False)
    dynamic_default: Mapping[str, str] = field(default_factory=dict, repr=False)
    dynamic_broker: Mapping[str, str] = field(default_factory=dict, repr=False)

    # Each of these is derived from several properties.
    listeners: tuple[Listener, ...]  # those that the broker opens, without the controller's
    advertised_listeners: tuple[Listener, ...]  # ports may still be 0: listeners.with_bound_ports
    listener_security: Mapping[str, ListenerSecurity]  # by listener name
    authorizer: AuthorizerSettings | None  # None without authorization
    remote_log_metadata_topic: MetadataTopic
    log_dirs: tuple[str, ...]
    log_retention_ms: int
    log_roll_ms: int
    log_roll_jitter_ms: int
    log_flush_interval_ms: int

    node_id: int
    broker_rack: str | None
    socket_request_max_bytes: int
    queued_max_request_bytes: int
    socket_send_buffer_bytes: int
    socket_receive_buffer_bytes: int
    socket_listen_backlog_size: int
    connections_max_idle_ms: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: str
    max_connection_creation_rate: int
    fetch_max_bytes: int
    telemetry_max_bytes: int
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int

    auto_create_topics_enable: bool
    delete_topic_enable: bool
    num_partitions: int
    default_replication_factor: int

    log_segment_bytes: int
    log_retention_bytes: int
    log_retention_check_interval_ms: int
    log_cleanup_policy: tuple[str, ...]
    log_index_size_max_bytes: int
    log_index_interval_bytes: int
    log_flush_interval_messages: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    log_segment_delete_delay_ms: int
    log_preallocate: bool
    log_message_timestamp_type: str
    log_message_timestamp_before_max_ms: int
    log_message_timestamp_after_max_ms: int
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    message_max_bytes: int
    min_insync_replicas: int
    num_recovery_threads_per_data_dir: int
    cordoned_log_dirs: tuple[str, ...]
    producer_id_expiration_ms: int
    producer_id_expiration_check_interval_ms: int
    log_cleaner_enable: bool
    log_cleaner_threads: int
    log_cleaner_io_max_bytes_per_second: float
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_io_buffer_size: int
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_backoff_ms: int
    log_cleaner_min_cleanable_ratio: float
    log_cleaner_delete_retention_ms: int
    log_cleaner_min_compaction_lag_ms: int
    log_cleaner_max_compaction_lag_ms: int

    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_initial_rebalance_delay_ms: int
    group_max_size: int
    group_consumer_session_timeout_ms: int
    group_consumer_min_session_timeout_ms: int
    group_consumer_max_session_timeout_ms: int
    group_consumer_heartbeat_interval_ms: int
    group_consumer_min_heartbeat_interval_ms: int
    group_consumer_max_heartbeat_interval_ms: int
    group_consumer_assignment_interval_ms: int
    group_consumer_min_assignment_interval_ms: int
    group_consumer_max_assignment_interval_ms: int
    group_consumer_max_size: int
    group_consumer_assignors: tuple[str, ...]
    group_consumer_migration_policy: str
    group_consumer_regex_refresh_interval_ms: int
    group_streams_session_timeout_ms: int
    group_streams_min_session_timeout_ms: int
    group_streams_max_session_timeout_ms: int
    group_streams_heartbeat_interval_ms: int
    group_streams_min_heartbeat_interval_ms: int
    group_streams_max_heartbeat_interval_ms: int
    group_streams_assignment_interval_ms: int
    group_streams_min_assignment_interval_ms: int
    group_streams_max_assignment_interval_ms: int
    group_streams_max_size: int
    group_streams_num_standby_replicas: int
    group_streams_max_standby_replicas: int
    group_streams_initial_rebalance_delay_ms: int
    group_coordinator_rebalance_protocols: tuple[str, ...]
    offset_metadata_max_bytes: int
    offsets_topic_num_partitions: int
    offsets_topic_segment_bytes: int
    offsets_retention_minutes: int
    offsets_retention_check_interval_ms: int

    group_share_session_timeout_ms: int
    group_share_min_session_timeout_ms: int
    group_share_max_session_timeout_ms: int
    group_share_heartbeat_interval_ms: int
    group_share_min_heartbeat_interval_ms: int
    group_share_max_heartbeat_interval_ms: int
    group_share_assignment_interval_ms: int
    group_share_min_assignment_interval_ms: int
    group_share_max_assignment_interval_ms: int
    group_share_initialize_retry_interval_ms: int
    group_share_max_size: int
    group_share_max_share_sessions: int
    group_share_record_lock_duration_ms: int
    group_share_delivery_count_limit: int
    group_share_partition_max_record_locks: int
    group_share_min_record_lock_duration_ms: int
    group_share_max_record_lock_duration_ms: int
    group_share_min_delivery_count_limit: int
    group_share_max_delivery_count_limit: int
    group_share_min_partition_max_record_locks: int
    group_share_max_partition_max_record_locks: int
    share_coordinator_state_topic_num_partitions: int
    share_coordinator_state_topic_segment_bytes: int
    share_coordinator_load_buffer_size: int
    share_coordinator_snapshot_update_records_per_snapshot: int
    share_coordinator_state_topic_prune_interval_ms: int
    share_coordinator_cold_partition_snapshot_interval_ms: int

    remote_log_storage_system_enable: bool
    log_local_retention_ms: int
    log_local_retention_bytes: int
    remote_log_index_file_cache_total_size_bytes: int
    remote_log_manager_task_interval_ms: int
    remote_log_manager_task_retry_backoff_ms: int
    remote_log_manager_task_retry_backoff_max_ms: int
    remote_log_manager_task_retry_jitter: float
    remote_log_manager_copier_thread_pool_size: int
    remote_log_manager_expiration_thread_pool_size: int
    remote_log_manager_copy_max_bytes_per_second: int
    remote_log_manager_copy_quota_window_num: int
    remote_log_manager_copy_quota_window_size_seconds: int
    remote_log_manager_fetch_max_bytes_per_second: int
    remote_log_manager_fetch_quota_window_num: int
    remote_log_manager_fetch_quota_window_size_seconds: int
    remote_log_reader_threads: int
    remote_log_reader_max_pending_tasks: int
    remote_log_metadata_custom_metadata_max_bytes: int
    remote_fetch_max_wait_ms: int
    remote_list_offsets_request_timeout_ms: int

    quota_window_num: int
    quota_window_size_seconds: int
    controller_quota_window_num: int
    controller_quota_window_size_seconds: int

    transactional_id_expiration_ms: int
    transaction_max_timeout_ms: int
    transaction_state_log_load_buffer_size: int
    transaction_state_log_num_partitions: int
    transaction_state_log_segment_bytes: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_partition_verification_enable: bool

    @classmethod
    def from_properties(cls, properties: Mapping[str, object], overrides: Mapping[str, object] | None = None) -> Self:
        """Make the configuration of a start.

        `properties` may come from the server.properties of a newer Kafka, so unknown properties are ignored (see
        `unknown`), unless ignoring one could weaken security or lose data.

        Args:
            properties: Values as text or with a text form.
            overrides: Properties that take precedence; an unknown one is an error.

        Raises:
            ConfigError: If a property is unknown, invalid, contradicts another, or is not supported and must not be
                ignored. The error names the property and, for an unknown one, the nearest known name.
        """
        overrides = overrides or {}
        static = {name: _text(value) for name, value in {**properties, **overrides}.items()}
        for name in unknown_names(static):
            if name in overrides or is_dangerous(name):
                raise unknown_property(name)
        static.setdefault("node.id", static.get("broker.id", DEFAULT_NODE_ID))
        static.setdefault("broker.id", static["node.id"])
        return cls._build(static, {}, {})

    def with_dynamic(self, dynamic_default: Mapping[str, str], dynamic_broker: Mapping[str, str]) -> Self:
        """Return the configuration with other dynamic layers. Raises ConfigError as `from_properties`."""
        return self._build(self.static, dynamic_default, dynamic_broker)

    @classmethod
    def _build(cls, static: Mapping[str, str], default: Mapping[str, str], broker: Mapping[str, str]) -> Self:
        default = {MIN_ISR: static.get(MIN_ISR, BROKER_PROPERTIES[MIN_ISR].default or ""), **default}
        layers = (broker, default, static)
        not_dynamic = sorted(AUTHORIZER_PROPERTIES & {*broker, *default})
        if not_dynamic:
            names = ", ".join(not_dynamic)
            raise ConfigError(f"Cannot update these configs dynamically: [{names}]", name=not_dynamic[0])
        ignored = {*unknown_names(static), *(name for name in static if name.startswith(plugin_prefixes(layers)))}
        for layer in layers:
            for name, text in layer.items():
                if layer is not static or name not in ignored:
                    check_text(name, text)
        texts = {name: first_value(layers, name) for name in BROKER_PROPERTIES}
        values: dict[str, Any] = {}
        for entry in fields(cls):
            name = entry.name.replace("_", ".")
            if name in BROKER_PROPERTIES:
                values[entry.name] = BROKER_PROPERTIES[name].parse(texts[name])
        values.update(combined_properties(layers))
        config = cls(static=dict(static), dynamic_default=dict(default), dynamic_broker=dict(broker), **values)
        check_together(config._value)
        return config

    def text(self, name: str) -> str | None:
        """Return a property's text as DescribeConfigs shows it, or None if it is not set and has no default.

        If a relative of the property (log.retention.minutes for log.retention.ms) was set while the broker ran, the
        value of the start is not shown.
        """
        for layer in self._layers[:2]:
            if name not in layer and any(relative in layer for relative in listed_relatives(name)):
                return BROKER_PROPERTIES[name].default
        return BROKER_PROPERTIES[name].text_of(first_value(self._layers, name))

    def sources(self, name: str) -> list[SourcedValue]:
        """Return the sources of the value of `name` in descending precedence.

        Within a layer these are `name` and its relatives (log.retention.minutes for log.retention.ms). As in Kafka
        (ConfigHelper.configSynonyms), sources before the first one of `name` itself are left out: with only
        log.retention.hours set, log.retention.ms has no source.
        """
        general = listener_property(name)  # the property of all listeners, if `name` is one of a single listener
        group = listed_relatives(name) if general is None else (name, general)
        values: list[SourcedValue] = []
        sources = (Source.DYNAMIC_BROKER, Source.DYNAMIC_DEFAULT_BROKER, Source.STATIC_BROKER)
        for source, layer in zip(sources, self._layers, strict=True):
            values += [SourcedValue(relative, layer[relative], source) for relative in group if relative in layer]
        for relative in group:
            default = BROKER_PROPERTIES[relative].default if relative in BROKER_PROPERTIES else None
            if default is not None:
                values.append(SourcedValue(relative, default, Source.DEFAULT))
        first = next((index for index, value in enumerate(values) if value.name == name), len(values))
        return values[first:]

    def listener_properties(self) -> list[str]:
        """Return the full names of properties set for single listeners: `listener.name.external.ssl.keystore.type`."""
        return sorted(name for name in set().union(*self._layers) if listener_property(name) is not None)

    def without_effect(self) -> list[str]:
        """Return the properties that were set, at the start or later, and that this broker does not act on."""
        served = plugin_prefixes((self.static,)) if self.remote_log_storage_system_enable else ()
        set_names = set().union(*self._layers).difference(self.unknown())
        return sorted(name for name in set_names if not is_served(name) and not name.startswith(served))

    def unknown(self) -> list[str]:
        """Return the properties of the start that Kafka 4.3 does not define. Like Kafka, this broker ignores them."""
        return sorted(unknown_names(self.static))

    def _value(self, name: str) -> Any:
        """Return the value of a property by its name: from its attribute, or else parsed from its text."""
        attribute = name.replace(".", "_")
        if hasattr(self, attribute):
            return getattr(self, attribute)
        return BROKER_PROPERTIES[name].parse(first_value(self._layers, name))

    @property
    def _layers(self) -> tuple[Mapping[str, str], ...]:
        return self.dynamic_broker, self.dynamic_default, self.static


@functools.cache
def served_properties() -> frozenset[str]:
    """Return the properties that this broker acts on: those of BrokerConfig's attributes, and those it refuses."""
    attributes = {entry.name.replace("_", ".") for entry in fields(BrokerConfig)}
    with_relatives = {relative for name in attributes for relative in relatives(name)}
    return frozenset(
        {*with_relatives, *CONTRIBUTING_PROPERTIES, *LISTENER_PROPERTIES, *REFUSED} & BROKER_PROPERTIES.keys()
    )


def is_served(name: str) -> bool:
    """Return True if this broker acts on the property, which may be one of a single listener."""
    return name in served_properties() or name in AUTHORIZER_PROPERTIES or listener_property(name) is not None


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)
