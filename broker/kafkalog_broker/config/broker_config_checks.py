"""Checks of broker properties against each other (KafkaConfig.validateValues), with Kafka's messages."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from kafkalog_broker.config.definition import ConfigError, invalid_value
from kafkalog_broker.config.remote_storage_settings import check_local_retention

ASSIGNORS = ("uniform", "range")  # assignors of consumer groups that this broker has

CLEANER_MAP_ENTRY_BYTES = 24
"""Bytes of an entry in the cleaner's offset map: 16 of hash and 8 of offset, as in Kafka, so that the same buffer size
has the same effect."""

MIN_CLEANER_MAP_BYTES = 1 << 20
"""Share of log.cleaner.dedupe.buffer.size that a cleaner thread must exceed."""

ValueLookup = Callable[[str], Any]
"""Returns the value of a property by its name."""


def check_together(value_of: ValueLookup) -> None:
    """Check the values of a configuration against each other.

    Raises:
        ConfigError: If two properties contradict each other; it names one of them.
    """
    for low, high in (
        ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
        ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    ):
        if value_of(low) > value_of(high):
            raise ConfigError(f"{low} ({value_of(low)}) is larger than {high} ({value_of(high)})", name=low)
    _check_groups(value_of)
    _check_connections(value_of)
    if value_of("remote.log.storage.system.enable"):
        check_local_retention("retention.bytes", value_of("log.retention.bytes"), value_of("log.local.retention.bytes"))
        check_local_retention("retention.ms", value_of("log.retention.ms"), value_of("log.local.retention.ms"))
    log_dirs = value_of("log.dirs")
    if not log_dirs or not all(log_dirs):
        raise ConfigError("log.dirs must name at least one directory", name="log.dirs")
    _check_cleaner(value_of)


def _check_groups(value_of: ValueLookup) -> None:
    """Check the rules of GroupCoordinatorConfig and ShareGroupConfig."""

    def require(name: str, comparison: Callable[[int, int], bool], words: str, other: str) -> None:
        if not comparison(int(value_of(name)), int(value_of(other))):
            raise ConfigError(f"{name} must be {words} {other}", name=name)

    for kind in ("consumer", "share", "streams"):
        for setting in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"):
            name, low, high = (f"group.{kind}.{prefix}{setting}" for prefix in ("", "min.", "max."))
            require(high, operator.ge, "greater than or equal to", low)
            require(name, operator.ge, "greater than or equal to", low)
            require(name, operator.le, "less than or equal to", high)
        heartbeat, session = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
        require(heartbeat, operator.lt, "less than", session)
    for setting in ("delivery.count.limit", "partition.max.record.locks", "record.lock.duration.ms"):
        name, low, high = (f"group.share.{prefix}{setting}" for prefix in ("", "min.", "max."))
        require(high, operator.ge, "greater than or equal to", name)
        require(name, operator.ge, "greater than or equal to", low)
    require("group.share.max.share.sessions", operator.ge, "greater than or equal to", "group.share.max.size")
    replicas, max_replicas = "group.streams.num.standby.replicas", "group.streams.max.standby.replicas"
    require(replicas, operator.le, "less than or equal to", max_replicas)
    assignors = value_of("group.consumer.assignors")
    name = "group.consumer.assignors"
    if not assignors or not set(assignors) <= set(ASSIGNORS):
        raise invalid_value(name, ",".join(assignors), f"this broker has {' and '.join(ASSIGNORS)}")


def _check_connections(value_of: ValueLookup) -> None:
    """Refuse limits under which no client could connect, not even to change them back (ConnectionQuotas)."""
    for name in ("max.connections", "max.connection.creation.rate"):
        if value_of(name) == 0:
            raise ConfigError(f"Invalid {name} 0", name=name, hint="no client could connect; it is at least 1")
    name, overrides = "max.connections.per.ip", "max.connections.per.ip.overrides"
    if value_of(name) == 0 and not value_of(overrides).strip():
        raise ConfigError(f"{name} can be set to zero only if {overrides} property is set.", name=name)
    idle, delay = "connections.max.idle.ms", "connection.failed.authentication.delay.ms"
    if 0 <= value_of(idle) <= value_of(delay):
        raise ConfigError(
            f"{delay}={value_of(delay)} should always be less than {idle}={value_of(idle)} to "
            "prevent failed authentication responses from timing out",
            name=idle,
        )


def _check_cleaner(value_of: ValueLookup) -> None:
    buffer, threads = "log.cleaner.dedupe.buffer.size", "log.cleaner.threads"
    map_bytes = value_of(buffer) // max(value_of(threads), 1)
    if map_bytes <= MIN_CLEANER_MAP_BYTES:
        raise ConfigError(
            f"{buffer} must be at least 1MB per cleaner thread.",
            name=buffer,
            hint=f"it is {value_of(buffer)} for {threads}={value_of(threads)}",
        )
    keys = map_bytes // CLEANER_MAP_ENTRY_BYTES
    if value_of("log.cleaner.enable") and keys * value_of("log.cleaner.io.buffer.load.factor") <= 1:
        raise ConfigError(
            f"{buffer} ({value_of(buffer)}): the offset map is too small to fit in even a single message, "
            f"so log cleaning will never make progress. You can increase {buffer} or decrease {threads}",
            name=buffer,
        )
