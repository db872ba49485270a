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
from dataclasses import dataclass, field, fields, make_dataclass
from typing import TYPE_CHECKING, Any, Self

from kafkalog_broker.config.definition import BROKER_PROPERTIES, ConfigError, Source, first_value, invalid_value
from kafkalog_broker.config.listeners import (
    LISTENER_PREFIX,
    LISTENER_PROPERTIES,
    Listener,
    ListenerSecurity,
    listener_property,
)
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

MIN_ISR = "min.insync.replicas"
"""Always set for all brokers, as Kafka's controller sets it when it forms a cluster (KIP-966)."""


NUMBERS = (
    "node.id", "socket.request.max.bytes", "queued.max.request.bytes", "socket.send.buffer.bytes",
    "socket.receive.buffer.bytes", "socket.listen.backlog.size", "connections.max.idle.ms", "max.connections",
    "max.connections.per.ip", "max.connection.creation.rate", "fetch.max.bytes", "telemetry.max.bytes",
    "max.incremental.fetch.session.cache.slots", "max.request.partition.size.limit",
    "num.partitions", "default.replication.factor",
    "log.segment.bytes", "log.retention.bytes", "log.retention.check.interval.ms", "log.index.size.max.bytes",
    "log.index.interval.bytes", "log.flush.interval.messages", "log.flush.offset.checkpoint.interval.ms",
    "log.flush.start.offset.checkpoint.interval.ms", "replica.high.watermark.checkpoint.interval.ms",
    "log.segment.delete.delay.ms", "log.message.timestamp.before.max.ms", "log.message.timestamp.after.max.ms",
    "compression.gzip.level", "compression.lz4.level", "compression.zstd.level", "message.max.bytes",
    "min.insync.replicas", "num.recovery.threads.per.data.dir", "producer.id.expiration.ms",
    "producer.id.expiration.check.interval.ms", "log.cleaner.threads", "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.size", "log.cleaner.backoff.ms", "log.cleaner.delete.retention.ms",
    "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms",
    "group.min.session.timeout.ms", "group.max.session.timeout.ms", "group.initial.rebalance.delay.ms",
    "group.max.size", "group.consumer.session.timeout.ms", "group.consumer.min.session.timeout.ms",
    "group.consumer.max.session.timeout.ms", "group.consumer.heartbeat.interval.ms",
    "group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms",
    "group.consumer.assignment.interval.ms", "group.consumer.min.assignment.interval.ms",
    "group.consumer.max.assignment.interval.ms", "group.consumer.max.size", "group.consumer.regex.refresh.interval.ms",
    "group.streams.session.timeout.ms", "group.streams.min.session.timeout.ms", "group.streams.max.session.timeout.ms",
    "group.streams.heartbeat.interval.ms", "group.streams.min.heartbeat.interval.ms",
    "group.streams.max.heartbeat.interval.ms", "group.streams.assignment.interval.ms",
    "group.streams.min.assignment.interval.ms", "group.streams.max.assignment.interval.ms", "group.streams.max.size",
    "group.streams.num.standby.replicas", "group.streams.max.standby.replicas",
    "group.streams.initial.rebalance.delay.ms", "offset.metadata.max.bytes", "offsets.topic.num.partitions",
    "offsets.topic.segment.bytes", "offsets.retention.minutes", "offsets.retention.check.interval.ms",
    "group.share.session.timeout.ms", "group.share.heartbeat.interval.ms", "group.share.assignment.interval.ms",
    "group.share.initialize.retry.interval.ms", "group.share.max.size", "group.share.max.share.sessions",
    "group.share.record.lock.duration.ms", "group.share.delivery.count.limit",
    "group.share.partition.max.record.locks", "group.share.min.record.lock.duration.ms",
    "group.share.max.record.lock.duration.ms", "group.share.min.delivery.count.limit",
    "group.share.max.delivery.count.limit", "group.share.min.partition.max.record.locks",
    "group.share.max.partition.max.record.locks", "share.coordinator.state.topic.num.partitions",
    "share.coordinator.state.topic.segment.bytes", "share.coordinator.load.buffer.size",
    "share.coordinator.snapshot.update.records.per.snapshot", "share.coordinator.state.topic.prune.interval.ms",
    "share.coordinator.cold.partition.snapshot.interval.ms",
    "log.local.retention.ms", "log.local.retention.bytes", "remote.log.index.file.cache.total.size.bytes",
    "remote.log.manager.task.interval.ms", "remote.log.manager.task.retry.backoff.ms",
    "remote.log.manager.task.retry.backoff.max.ms", "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size", "remote.log.manager.copy.max.bytes.per.second",
    "remote.log.manager.copy.quota.window.num", "remote.log.manager.copy.quota.window.size.seconds",
    "remote.log.manager.fetch.max.bytes.per.second", "remote.log.manager.fetch.quota.window.num",
    "remote.log.manager.fetch.quota.window.size.seconds", "remote.log.reader.threads",
    "remote.log.reader.max.pending.tasks", "remote.log.metadata.custom.metadata.max.bytes", "remote.fetch.max.wait.ms",
    "remote.list.offsets.request.timeout.ms",
    "quota.window.num", "quota.window.size.seconds", "controller.quota.window.num",
    "controller.quota.window.size.seconds",
    "transactional.id.expiration.ms", "transaction.max.timeout.ms", "transaction.state.log.load.buffer.size",
    "transaction.state.log.num.partitions", "transaction.state.log.segment.bytes",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    "transaction.remove.expired.transaction.cleanup.interval.ms",
)  # fmt: skip
"""Whole numbers that this broker acts on."""

if TYPE_CHECKING:

    class _Numbers:
        def __getattr__(self, name: str) -> int: ...

else:
    _Numbers = make_dataclass(
        "_Numbers", [(name.replace(".", "_"), int) for name in NUMBERS], frozen=True, slots=True, kw_only=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(_Numbers):
    """Attributes are Kafka's names in snake_case, of those properties that this broker acts on, NUMBERS among them:
    whoever reads a further one declares it here, and who reads one no longer removes it (a test looks for readers), so
    that `without_effect` tells the truth. `static`, `dynamic_default`, `dynamic_broker`: what was set, as text."""

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

    broker_rack: str | None
    max_connections_per_ip_overrides: str
    auto_create_topics_enable: bool
    delete_topic_enable: bool
    log_cleanup_policy: tuple[str, ...]
    log_preallocate: bool
    log_message_timestamp_type: str
    compression_type: str
    cordoned_log_dirs: tuple[str, ...]
    log_cleaner_enable: bool
    log_cleaner_io_max_bytes_per_second: float
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_min_cleanable_ratio: float
    group_consumer_assignors: tuple[str, ...]
    group_consumer_migration_policy: str
    group_coordinator_rebalance_protocols: tuple[str, ...]
    remote_log_storage_system_enable: bool
    remote_log_manager_task_retry_jitter: float
    transaction_partition_verification_enable: bool

    @classmethod
    def from_properties(cls, properties: Mapping[str, object], overrides: Mapping[str, object] | None = None) -> Self:
        """`overrides` win over `properties`; values are text or what str() makes text of. Raises ConfigError, naming
        the property: one that is unknown (and the nearest one), a value that is not allowed, values that contradict
        each other, or a property whose neglect would be dangerous."""
        static = {name: _text(value) for name, value in {**properties, **(overrides or {})}.items()}
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
        plugins = plugin_prefixes(layers)
        for layer in layers:
            for name, text in layer.items():
                if layer is not static or not name.startswith(plugins):
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
        given = set().union(*self._layers)
        return sorted(name for name in given if not is_served(name) and not name.startswith(served))

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
        if self.remote_log_storage_system_enable:
            check_local_retention("retention.bytes", self.log_retention_bytes, self.log_local_retention_bytes)
            check_local_retention("retention.ms", self.log_retention_ms, self.log_local_retention_ms)
        if not self.log_dirs or not all(self.log_dirs):
            raise ConfigError("log.dirs must name at least one directory", name="log.dirs")
        if len(set(self.log_dirs)) != len(self.log_dirs):
            raise ConfigError(f"log.dirs names a directory twice: {','.join(self.log_dirs)}", name="log.dirs")
        keys = self.log_cleaner_dedupe_buffer_size // max(self.log_cleaner_threads, 1) // CLEANER_MAP_ENTRY_BYTES
        if self.log_cleaner_enable and keys * self.log_cleaner_io_buffer_load_factor <= 1:
            raise ConfigError(
                f"log.cleaner.dedupe.buffer.size ({self.log_cleaner_dedupe_buffer_size}): the offset map is too small "
                f"to fit in even a single message, so log cleaning will never make progress. You can increase "
                f"log.cleaner.dedupe.buffer.size or decrease log.cleaner.threads",
                name="log.cleaner.dedupe.buffer.size",
            )

    def _check_groups(self) -> None:
        """Rules of GroupCoordinatorConfig, in Kafka's words."""

        def check(name: str, holds: Callable[[int, int], bool], words: str, other: str) -> None:
            if not holds(*(int(getattr(self, key.replace(".", "_"))) for key in (name, other))):
                raise ConfigError(f"{name} must be {words} {other}", name=name)

        for kind in ("consumer", "streams"):
            for what in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"):
                name, low, high = (f"group.{kind}.{prefix}{what}" for prefix in ("", "min.", "max."))
                check(high, operator.ge, "greater than or equal to", low)
                check(name, operator.ge, "greater than or equal to", low)
                check(name, operator.le, "less than or equal to", high)
            heartbeat, session = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
            check(heartbeat, operator.lt, "less than", session)
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


def _check(name: str, text: str) -> None:
    if name.startswith(LISTENER_PREFIX):
        own = listener_property(name)  # else one of limits or of other security, accepted without effect
        if own is not None:
            BROKER_PROPERTIES[own].parse(text)
        return
    if name in AUTHORIZER_PROPERTIES:
        return  # AuthorizerSettings checks them
    if name not in BROKER_PROPERTIES:
        near = difflib.get_close_matches(name, BROKER_PROPERTIES, n=1, cutoff=0.6)
        hint = f"did you mean {near[0]}?" if near else None
        raise ConfigError(f"Unknown broker property {name[:200]!r}", name=name, hint=hint)
    value = BROKER_PROPERTIES[name].parse(text)
    if name in REFUSED and value not in ("", (), False, None):
        raise invalid_value(name, text, REFUSED[name])


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)
