"""The broker's configuration: what server.properties, the command line and dynamic changes make of Kafka's properties.

    config = BrokerConfig.from_properties({"log.dirs": "/data", "log.retention.hours": "24"})
    config.log_retention_ms            # 86_400_000: units and relatives are resolved
    config.num_partitions              # 1, Kafka's default
    config.text("log.retention.hours") # "24"
    config.sources("num.partitions")   # [("num.partitions", "1", Source.DEFAULT)]

Four layers, the upper one wins: set for this broker while it runs, set for all brokers while they run, set at start,
Kafka's defaults. A change makes a new BrokerConfig (`with_dynamic`).
"""

from __future__ import annotations

import difflib
import functools
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from kafkalog_broker.config.definition import BROKER_PROPERTIES, ConfigError, Source, first_value, invalid_value
from kafkalog_broker.config.listener_settings import (
    LISTENER_PREFIX,
    LISTENER_PROPERTIES,
    MECHANISM_PROPERTIES,
    ListenerSecurity,
    listener_property,
)
from kafkalog_broker.config.listeners import Listener
from kafkalog_broker.config.properties import (
    AUTHORIZER_PROPERTIES,
    PARTS,
    REFUSED,
    AuthorizerSettings,
    MetadataTopic,
    check_local_retention,
    combined_properties,
    listed_relatives,
    plugin_prefixes,
    relatives,
)

ASSIGNORS = ("uniform", "range")  # assignors of consumer groups that are served
DEFAULT_NODE_ID = "1"  # Kafka has no default; a broker that is alone needs no choice
CLEANER_MAP_ENTRY_BYTES = 24
"""Bytes of a key in the cleaner's map: 16 of hash, 8 of offset. As in Kafka, so that a setting means the same."""

MIN_CLEANER_MAP_BYTES = 1 << 20
"""Share of log.cleaner.dedupe.buffer.size that a cleaner thread must exceed (KafkaConfig.validateValues)."""

MIN_ISR = "min.insync.replicas"
"""Always set for all brokers, as Kafka's controller sets it when it forms a cluster (KIP-966)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Attributes are Kafka's names in snake_case, of those properties that this broker acts on: whoever reads a further
    one declares it here, and who reads one no longer removes it (a test looks for readers), so that `without_effect`
    tells the truth. `static`, `dynamic_default`, `dynamic_broker`: what was set, as text."""

    static: Mapping[str, str] = field(repr=False)
    dynamic_default: Mapping[str, str] = field(default_factory=dict, repr=False)
    dynamic_broker: Mapping[str, str] = field(default_factory=dict, repr=False)

    # Made of several properties.
    listeners: tuple[Listener, ...]  # those that the broker opens: without the controller's
    advertised_listeners: tuple[Listener, ...]  # ports may still be 0: listeners.with_bound_ports
    listener_security: Mapping[str, ListenerSecurity]  # by listener name
    authorizer: AuthorizerSettings | None  # None: everybody may do everything
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
        """`overrides` win over `properties`; values are text or what str() makes text of.

        An unknown property of `properties`, which may be the server.properties of a newer Kafka, is accepted without
        effect, see `unknown`. Raises ConfigError, naming the property: one of `overrides` that is unknown (and the
        nearest one), one that is unknown and would leave the broker open or lose data if it were neglected, a value
        that is not allowed, values that contradict each other, or a property that this broker must not neglect."""
        overrides = overrides or {}
        static = {name: _text(value) for name, value in {**properties, **overrides}.items()}
        for name in _unknown(static):
            if name in overrides or _is_dangerous(name):
                raise _unknown_property(name)
        for one, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
            if one not in static:
                static[one] = static.get(other, DEFAULT_NODE_ID)
        return cls._build(static, {}, {})

    def with_dynamic(self, dynamic_default: Mapping[str, str], dynamic_broker: Mapping[str, str]) -> Self:
        """The configuration with other dynamic layers. Raises as `from_properties`."""
        return self._build(self.static, dynamic_default, dynamic_broker)

    @classmethod
    def _build(cls, static: Mapping[str, str], default: Mapping[str, str], broker: Mapping[str, str]) -> Self:
        default = {MIN_ISR: static.get(MIN_ISR, BROKER_PROPERTIES[MIN_ISR].default or ""), **default}
        layers = (broker, default, static)
        fixed = sorted(AUTHORIZER_PROPERTIES & {*broker, *default})
        if fixed:
            raise ConfigError(f"Cannot update these configs dynamically: [{', '.join(fixed)}]", name=fixed[0])
        ignored = {*_unknown(static), *(name for name in static if name.startswith(plugin_prefixes(layers)))}
        for layer in layers:
            for name, text in layer.items():
                if layer is not static or name not in ignored:
                    _check(name, text)
        texts = {name: first_value(layers, name) for name in BROKER_PROPERTIES}
        values: dict[str, Any] = {}
        for entry in fields(cls):
            name = entry.name.replace("_", ".")
            if name in BROKER_PROPERTIES:
                values[entry.name] = BROKER_PROPERTIES[name].parse(texts[name])
        values.update(combined_properties(layers))
        made = cls(static=dict(static), dynamic_default=dict(default), dynamic_broker=dict(broker), **values)
        made._check_together()
        return made

    def text(self, name: str) -> str | None:
        """Any property of Kafka's, from the uppermost layer that has it, as it is described; None: not set, no default.
        A relative that was set while the broker runs hides what was set at start."""
        for layer in self._layers[:2]:
            if name not in layer and any(relative in layer for relative in listed_relatives(name)):
                return BROKER_PROPERTIES[name].default
        return BROKER_PROPERTIES[name].text_of(first_value(self._layers, name))

    def sources(self, name: str) -> list[tuple[str, str | None, Source]]:
        """Sources of the value of `name`: (property, text as given, layer), the one that counts first; within a layer,
        `name` and its relatives (log.retention.minutes for log.retention.ms). As in Kafka
        (ConfigHelper.configSynonyms), what comes before the first mention of `name` itself is left out: with only
        log.retention.hours set, log.retention.ms has no source."""
        own = listener_property(name)  # what all listeners have stands in for what one of them has
        group = listed_relatives(name) if own is None else (name, own)
        found: list[tuple[str, str | None, Source]] = []
        sources = (Source.DYNAMIC_BROKER, Source.DYNAMIC_DEFAULT_BROKER, Source.STATIC_BROKER)
        for source, layer in zip(sources, self._layers, strict=True):
            found += [(relative, layer[relative], source) for relative in group if relative in layer]
        for relative in group:
            default = BROKER_PROPERTIES[relative].default if relative in BROKER_PROPERTIES else None
            if default is not None:
                found.append((relative, default, Source.DEFAULT))
        first = next((at for at, entry in enumerate(found) if entry[0] == name), len(found))
        return found[first:]

    def listener_properties(self) -> list[str]:
        """The properties of single listeners that were set, in full: `listener.name.external.ssl.keystore.type`."""
        return sorted(name for name in set().union(*self._layers) if listener_property(name) is not None)

    def without_effect(self) -> list[str]:
        """Properties that were set, at start or while a broker ran, and that this broker does not act on."""
        served = plugin_prefixes((self.static,)) if self.remote_log_storage_system_enable else ()
        given = set().union(*self._layers).difference(self.unknown())
        return sorted(name for name in given if not is_served(name) and not name.startswith(served))

    def unknown(self) -> list[str]:
        """Properties of the start that Kafka 4.3 does not define: misspelt, or of another release. Kafka accepts them
        too."""
        return sorted(_unknown(self.static))

    @property
    def _layers(self) -> tuple[Mapping[str, str], ...]:
        return self.dynamic_broker, self.dynamic_default, self.static

    def _check_together(self) -> None:
        """Rules between properties (KafkaConfig.validateValues)."""
        for low, high in (
            ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
            ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
        ):
            least, most = (getattr(self, name.replace(".", "_")) for name in (low, high))
            if least > most:
                raise ConfigError(f"{low} ({least}) is larger than {high} ({most})", name=low)
        self._check_groups()
        self._check_connections()
        if self.remote_log_storage_system_enable:
            check_local_retention("retention.bytes", self.log_retention_bytes, self.log_local_retention_bytes)
            check_local_retention("retention.ms", self.log_retention_ms, self.log_local_retention_ms)
        if not self.log_dirs or not all(self.log_dirs):
            raise ConfigError("log.dirs must name at least one directory", name="log.dirs")
        map_bytes = self.log_cleaner_dedupe_buffer_size // max(self.log_cleaner_threads, 1)
        if map_bytes <= MIN_CLEANER_MAP_BYTES:
            raise ConfigError(
                "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
                name="log.cleaner.dedupe.buffer.size",
                hint=f"it is {self.log_cleaner_dedupe_buffer_size} for log.cleaner.threads={self.log_cleaner_threads}",
            )
        keys = map_bytes // CLEANER_MAP_ENTRY_BYTES
        if self.log_cleaner_enable and keys * self.log_cleaner_io_buffer_load_factor <= 1:
            raise ConfigError(
                f"log.cleaner.dedupe.buffer.size ({self.log_cleaner_dedupe_buffer_size}): the offset map is too small "
                f"to fit in even a single message, so log cleaning will never make progress. You can increase "
                f"log.cleaner.dedupe.buffer.size or decrease log.cleaner.threads",
                name="log.cleaner.dedupe.buffer.size",
            )

    def _check_connections(self) -> None:
        """Refuse limits that admit no connection at all: not even one that could change them back. Words of Kafka's
        ConnectionQuotas and KafkaConfig.validateValues."""
        for name in ("max.connections", "max.connection.creation.rate"):
            if getattr(self, name.replace(".", "_")) == 0:
                raise ConfigError(f"Invalid {name} 0", name=name, hint="no client could connect; it is at least 1")
        overrides = "max.connections.per.ip.overrides"
        if self.max_connections_per_ip == 0 and not self.max_connections_per_ip_overrides.strip():
            name = "max.connections.per.ip"
            raise ConfigError(f"{name} can be set to zero only if {overrides} property is set.", name=name)
        idle, delay = "connections.max.idle.ms", "connection.failed.authentication.delay.ms"
        if 0 <= self.connections_max_idle_ms <= int(self.text(delay) or 0):
            raise ConfigError(
                f"{delay}={self.text(delay)} should always be less than {idle}={self.connections_max_idle_ms} to "
                "prevent failed authentication responses from timing out",
                name=idle,
            )

    def _check_groups(self) -> None:
        """Rules of GroupCoordinatorConfig and ShareGroupConfig, in Kafka's words."""

        def check(name: str, holds: Callable[[int, int], bool], words: str, other: str) -> None:
            if not holds(*(int(getattr(self, key.replace(".", "_"))) for key in (name, other))):
                raise ConfigError(f"{name} must be {words} {other}", name=name)

        for kind in ("consumer", "share", "streams"):
            for what in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"):
                name, low, high = (f"group.{kind}.{prefix}{what}" for prefix in ("", "min.", "max."))
                check(high, operator.ge, "greater than or equal to", low)
                check(name, operator.ge, "greater than or equal to", low)
                check(name, operator.le, "less than or equal to", high)
            heartbeat, session = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
            check(heartbeat, operator.lt, "less than", session)
        for what in ("delivery.count.limit", "partition.max.record.locks", "record.lock.duration.ms"):
            name, low, high = (f"group.share.{prefix}{what}" for prefix in ("", "min.", "max."))
            check(high, operator.ge, "greater than or equal to", name)
            check(name, operator.ge, "greater than or equal to", low)
        check("group.share.max.share.sessions", operator.ge, "greater than or equal to", "group.share.max.size")
        replicas, most = "group.streams.num.standby.replicas", "group.streams.max.standby.replicas"
        check(replicas, operator.le, "less than or equal to", most)
        assignors, name = self.group_consumer_assignors, "group.consumer.assignors"
        if not assignors or not set(assignors) <= set(ASSIGNORS):
            raise invalid_value(name, ",".join(assignors), f"this broker has {' and '.join(ASSIGNORS)}")


@functools.cache
def served_properties() -> frozenset[str]:
    """Properties that this broker acts on: those behind attributes of BrokerConfig, and those that it refuses."""
    attributes = {entry.name.replace("_", ".") for entry in fields(BrokerConfig)}
    with_relatives = {relative for name in attributes for relative in relatives(name)}
    return frozenset({*with_relatives, *PARTS, *LISTENER_PROPERTIES, *REFUSED} & BROKER_PROPERTIES.keys())


def is_served(name: str) -> bool:
    """True if this broker acts on the property; a listener's own too."""
    return name in served_properties() or name in AUTHORIZER_PROPERTIES or listener_property(name) is not None


def nearest_property(name: str) -> str | None:
    """The known property that `name` is most likely a misspelling of; None if no name is near."""
    return next(iter(difflib.get_close_matches(_of_all_listeners(name), _KNOWN, n=1, cutoff=NEAR)), None)


_KNOWN = BROKER_PROPERTIES.keys() | AUTHORIZER_PROPERTIES
NEAR = 0.85
"""Least similarity of a misspelt name (difflib's ratio). A new property that has some words of a known one is below."""


def _unknown_property(name: str) -> ConfigError:
    nearest = nearest_property(name)
    hint = None if nearest is None else f"did you mean {nearest}?"
    return ConfigError(f"Unknown broker property {name[:200]!r}", name=name, hint=hint)


def _unknown(static: Mapping[str, str]) -> list[str]:
    plugins = plugin_prefixes((static,))
    return [name for name in static if _of_all_listeners(name) not in _KNOWN and not name.startswith(plugins)]


def _of_all_listeners(name: str) -> str:
    """`ssl.keystore.type` of `listener.name.external.ssl.keystore.type`, `sasl.jaas.config` of
    `listener.name.external.plain.sasl.jaas.config`; another name as it is."""
    if not name.startswith(LISTENER_PREFIX):
        return name
    rest = name.removeprefix(LISTENER_PREFIX).partition(".")[2]
    of_mechanism = rest.partition(".")[2]
    return of_mechanism if of_mechanism.startswith("sasl.") or of_mechanism in MECHANISM_PROPERTIES else rest


_SECURITY = (
    "ssl.", "sasl.", "security.", "authorizer.", "super.users", "allow.everyone.", "listener", "advertised.listeners",
    "principal.", "connections.max.reauth.ms", "delegation.token.", *REFUSED,
)  # fmt: skip
_RETENTION_AND_FLUSH = (
    "log.dir",
    "log.retention.",
    "log.local.retention.",
    "log.cleanup.policy",
    "log.flush.interval.",
)


def _is_dangerous(name: str) -> bool:
    """True if neglecting this unknown property could leave the broker open or lose data: a property of security, or one
    that is most likely a misspelt property of security, retention or durability."""
    nearest = nearest_property(name) or ""
    return _of_all_listeners(name).startswith(_SECURITY) or nearest.startswith((*_SECURITY, *_RETENTION_AND_FLUSH))


def _check(name: str, text: str) -> None:
    if name.startswith(LISTENER_PREFIX):
        own = listener_property(name)  # else one of limits or of other security, accepted without effect
        if own is not None:
            BROKER_PROPERTIES[own].parse(text)
        return
    if name in AUTHORIZER_PROPERTIES:
        return  # AuthorizerSettings checks them
    if name not in BROKER_PROPERTIES:
        raise _unknown_property(name)
    value = BROKER_PROPERTIES[name].parse(text)
    if name in REFUSED and value not in ("", (), False, None):
        raise invalid_value(name, text, REFUSED[name])


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)
