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

Value = Callable[[str], Any]
"""Returns the value of a property by its name."""


def check_together(value: Value) -> None:
    """Check the values of a configuration against each other.

    Raises:
        ConfigError: If two properties contradict each other; it names one of them.
    """
    for low, high in (
        ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
        ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    ):
        if value(low) > value(high):
            raise ConfigError(f"{low} ({value(low)}) is larger than {high} ({value(high)})", name=low)
    _check_groups(value)
    _check_connections(value)
    if value("remote.log.storage.system.enable"):
        check_local_retention("retention.bytes", value("log.retention.bytes"), value("log.local.retention.bytes"))
        check_local_retention("retention.ms", value("log.retention.ms"), value("log.local.retention.ms"))
    log_dirs = value("log.dirs")
    if not log_dirs or not all(log_dirs):
        raise ConfigError("log.dirs must name at least one directory", name="log.dirs")
    _check_cleaner(value)


def _check_groups(value: Value) -> None:
    """Check the rules of GroupCoordinatorConfig and ShareGroupConfig."""

    def check(name: str, comparison: Callable[[int, int], bool], words: str, other: str) -> None:
        if not comparison(int(value(name)), int(value(other))):
            raise ConfigError(f"{name} must be {words} {other}", name=name)

    for kind in ("consumer", "share", "streams"):
        for setting in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"):
            name, low, high = (f"group.{kind}.{prefix}{setting}" for prefix in ("", "min.", "max."))
            check(high, operator.ge, "greater than or equal to", low)
            check(name, operator.ge, "greater than or equal to", low)
            check(name, operator.le, "less than or equal to", high)
        heartbeat, session = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
        check(heartbeat, operator.lt, "less than", session)
    for setting in ("delivery.count.limit", "partition.max.record.locks", "record.lock.duration.ms"):
        name, low, high = (f"group.share.{prefix}{setting}" for prefix in ("", "min.", "max."))
        check(high, operator.ge, "greater than or equal to", name)
        check(name, operator.ge, "greater than or equal to", low)
    check("group.share.max.share.sessions", operator.ge, "greater than or equal to", "group.share.max.size")
    replicas, max_replicas = "group.streams.num.standby.replicas", "group.streams.max.standby.replicas"
    check(replicas, operator.le, "less than or equal to", max_replicas)
    assignors = value("group.consumer.assignors")
    name = "group.consumer.assignors"
    if not assignors or not set(assignors) <= set(ASSIGNORS):
        raise invalid_value(name, ",".join(assignors), f"this broker has {' and '.join(ASSIGNORS)}")


def _check_connections(value: Value) -> None:
    """Refuse limits under which no client could connect, not even to change them back (ConnectionQuotas)."""
    for name in ("max.connections", "max.connection.creation.rate"):
        if value(name) == 0:
            raise ConfigError(f"Invalid {name} 0", name=name, hint="no client could connect; it is at least 1")
    name, overrides = "max.connections.per.ip", "max.connections.per.ip.overrides"
    if value(name) == 0 and not value(overrides).strip():
        raise ConfigError(f"{name} can be set to zero only if {overrides} property is set.", name=name)
    idle, delay = "connections.max.idle.ms", "connection.failed.authentication.delay.ms"
    if 0 <= value(idle) <= value(delay):
        raise ConfigError(
            f"{delay}={value(delay)} should always be less than {idle}={value(idle)} to "
            "prevent failed authentication responses from timing out",
            name=idle,
        )


def _check_cleaner(value: Value) -> None:
    buffer, threads = "log.cleaner.dedupe.buffer.size", "log.cleaner.threads"
    map_bytes = value(buffer) // max(value(threads), 1)
    if map_bytes <= MIN_CLEANER_MAP_BYTES:
        raise ConfigError(
            f"{buffer} must be at least 1MB per cleaner thread.",
            name=buffer,
            hint=f"it is {value(buffer)} for {threads}={value(threads)}",
        )
    keys = map_bytes // CLEANER_MAP_ENTRY_BYTES
    if value("log.cleaner.enable") and keys * value("log.cleaner.io.buffer.load.factor") <= 1:
        raise ConfigError(
            f"{buffer} ({value(buffer)}): the offset map is too small to fit in even a single message, so log cleaning "
            f"will never make progress. You can increase {buffer} or decrease {threads}",
            name=buffer,
        )
