"""Properties of groups (Kafka's GroupConfig): set by IncrementalAlterConfigs for the resource GROUP.

The broker acts on those of consumer groups (KIP-848). All others are known by name, type and range, and kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.definition import (
    BROKER_PROPERTIES,
    Between,
    ConfigError,
    OneOf,
    Property,
    PropertyType,
    Value,
    format_value,
)

_NUMBERS = {
    "consumer.session.timeout.ms": "group.consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms": "group.consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms": "group.consumer.assignment.interval.ms",
    "share.session.timeout.ms": "group.share.session.timeout.ms",
    "share.heartbeat.interval.ms": "group.share.heartbeat.interval.ms",
    "share.record.lock.duration.ms": "group.share.record.lock.duration.ms",
    "share.delivery.count.limit": "group.share.delivery.count.limit",
    "share.partition.max.record.locks": "group.share.partition.max.record.locks",
    "share.assignment.interval.ms": "group.share.assignment.interval.ms",
    "streams.session.timeout.ms": "group.streams.session.timeout.ms",
    "streams.heartbeat.interval.ms": "group.streams.heartbeat.interval.ms",
    "streams.num.standby.replicas": "group.streams.num.standby.replicas",
    "streams.initial.rebalance.delay.ms": "group.streams.initial.rebalance.delay.ms",
    "streams.assignment.interval.ms": "group.streams.assignment.interval.ms",
}
BROKERS_OWN: Mapping[str, str] = {own: broker for own, broker in _NUMBERS.items() if broker in BROKER_PROPERTIES}
"""The property of the broker that a group's takes its default from."""

_WORDS = {
    "share.auto.offset.reset": ("latest", None, "Where a share group begins in a partition that it has not read."),
    "share.isolation.level": (
        "read_uncommitted", OneOf(("read_committed", "read_uncommitted")),
        "Whether a share group gets records of transactions that are open or aborted.",
    ),
}  # fmt: skip


def _number(own: str, brokers: str) -> Property:
    entry = BROKER_PROPERTIES[brokers]
    return Property(own, PropertyType.INT, entry.default, entry.allowed or Between(low=0), "medium", entry.doc)


GROUP_PROPERTIES: Mapping[str, Property] = {
    **{own: _number(own, brokers) for own, brokers in BROKERS_OWN.items()},
    **{
        name: Property(name, PropertyType.STRING, default, allowed, "medium", doc)
        for name, (default, allowed, doc) in _WORDS.items()
    },
    "share.renew.acknowledge.enable": Property(
        "share.renew.acknowledge.enable", PropertyType.BOOLEAN, "true", None, "medium",
        "Whether consumers of a share group may renew the lock of a record.",
    ),
}  # fmt: skip

_TIMES = ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")


def check_group_properties(overrides: Mapping[str, str], config: BrokerConfig) -> None:
    """Raises ConfigError, in Kafka's words (GroupConfig.validate)."""
    for name, text in overrides.items():
        if name not in GROUP_PROPERTIES:
            raise ConfigError(f"Unknown group config name: {name}", name=name)
        GROUP_PROPERTIES[name].parse(text)
    for kind in ("consumer", "share", "streams"):
        heartbeat, session = (_value(f"{kind}.{name}", overrides, config) for name in _TIMES[:2])
        for limited in _TIMES:
            _check_limits(f"{kind}.{limited}", overrides, config)
        if session is not None and heartbeat is not None and session <= heartbeat:
            name = f"{kind}.session.timeout.ms"
            raise ConfigError(f"{name} must be greater than {kind}.heartbeat.interval.ms", name=name)
    for what, low, high in (
        ("record.lock.duration.ms", config.group_share_min_record_lock_duration_ms,
         config.group_share_max_record_lock_duration_ms),
        ("delivery.count.limit", config.group_share_min_delivery_count_limit,
         config.group_share_max_delivery_count_limit),
        ("partition.max.record.locks", config.group_share_min_partition_max_record_locks,
         config.group_share_max_partition_max_record_locks),
    ):  # fmt: skip
        _check_limit(f"share.{what}", overrides, low, high)
    reset = overrides.get(_RESET, LATEST)
    if reset.lower() not in (EARLIEST, LATEST) and reset_duration_ms(reset) is None:
        raise ConfigError(
            f"Invalid value {reset} for configuration {_RESET}: Invalid value `{reset}` for configuration {_RESET}. "
            "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.",
            name=_RESET,
        )


def _value(name: str, overrides: Mapping[str, str], config: BrokerConfig) -> int | None:
    text = overrides.get(name, config.text(BROKERS_OWN[name]) if name in BROKERS_OWN else None)
    return None if text is None else int(text)


def _check_limits(name: str, overrides: Mapping[str, str], config: BrokerConfig) -> None:
    kind, _, what = name.partition(".")
    limits = (f"group.{kind}.min.{what}", f"group.{kind}.max.{what}")
    texts = (config.text(limit) if limit in BROKER_PROPERTIES else None for limit in limits)
    _check_limit(name, overrides, *(None if text is None else int(text) for text in texts))


def _check_limit(name: str, overrides: Mapping[str, str], low: int | None, high: int | None) -> None:
    if name not in overrides:
        return
    kind, _, what = name.partition(".")
    if low is not None and int(overrides[name]) < low:
        raise ConfigError(f"{name} must be greater than or equal to group.{kind}.min.{what}", name=name)
    if high is not None and int(overrides[name]) > high:
        raise ConfigError(f"{name} must be less than or equal to group.{kind}.max.{what}", name=name)


EARLIEST, LATEST, BY_DURATION = "earliest", "latest", "by_duration:"
_RESET = "share.auto.offset.reset"
_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?", re.I
)


def reset_duration_ms(reset: str) -> int | None:
    """How far back share.auto.offset.reset goes; None where it is no duration."""
    if not reset.lower().startswith(BY_DURATION):
        return None
    text = reset[len(BY_DURATION) :]
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()) or text.upper().endswith("T"):
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


# Properties of subscriptions to client metrics, the resource CLIENT_METRICS (ClientMetricsConfigs, KIP-714).

METRICS, INTERVAL_MS, MATCH = "metrics", "interval.ms", "match"
ALL_METRICS = "*"
DEFAULT_INTERVAL_MS = 300_000
INTERVALS_MS = range(100, 3_600_001)

CLIENT_METRICS_PROPERTIES: Mapping[str, Property] = {
    entry.name: entry
    for entry in (
        Property(
            INTERVAL_MS,
            PropertyType.INT,
            str(DEFAULT_INTERVAL_MS),
            None,
            "medium",
            "How often clients push metrics, in ms.",
        ),
        Property(
            MATCH, PropertyType.LIST, "", None, "medium", "Clients that push: what=expression, all of which match."
        ),
        Property(METRICS, PropertyType.LIST, "", None, "medium", "Prefixes of the names of metrics that are pushed."),
    )
}


def client_metrics_value(name: str, overrides: Mapping[str, str]) -> Value:
    """Parsed property of a subscription; repeated items of a list count once. Raises ConfigError."""
    entry = CLIENT_METRICS_PROPERTIES[name]
    value = entry.parse(overrides.get(name, entry.default))
    return tuple(dict.fromkeys(value)) if isinstance(value, tuple) else value


def client_metrics_text(name: str, overrides: Mapping[str, str]) -> str | None:
    """Property of a subscription as text, for descriptions."""
    return format_value(client_metrics_value(name, overrides))
