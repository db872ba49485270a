"""Properties of groups (Kafka's GroupConfig): set by IncrementalAlterConfigs for the resource GROUP.

The broker acts on those of consumer groups (KIP-848). All others are known by name, type and range, and kept.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.definition import Between, ConfigError, OneOf, Property, PropertyType
from kafkalog_broker.config.kafka_properties import BROKER_PROPERTIES

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

_LIMITED = ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")


def check_group_properties(overrides: Mapping[str, str], config: BrokerConfig) -> None:
    """Raises ConfigError, in Kafka's words (GroupConfig.validate)."""
    for name, text in overrides.items():
        if name not in GROUP_PROPERTIES:
            raise ConfigError(f"Unknown group config name: {name}", name=name)
        GROUP_PROPERTIES[name].parse(text)
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = (_value(f"{kind}.{name}", overrides, config) for name in _LIMITED[:2])
        for limited in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"):
            name = f"{kind}.{limited}"
            if name in overrides:
                _check_limits(name, int(overrides[name]), config)
        if session is not None and heartbeat is not None and session <= heartbeat:
            name = f"{kind}.session.timeout.ms"
            raise ConfigError(f"{name} must be greater than {kind}.heartbeat.interval.ms", name=name)


def _value(name: str, overrides: Mapping[str, str], config: BrokerConfig) -> int | None:
    text = overrides.get(name, config.text(BROKERS_OWN[name]) if name in BROKERS_OWN else None)
    return None if text is None else int(text)


def _check_limits(name: str, value: int, config: BrokerConfig) -> None:
    kind, _, what = name.partition(".")
    for limit, is_wrong, words in (
        (f"group.{kind}.min.{what}", int.__lt__, "greater than or equal to"),
        (f"group.{kind}.max.{what}", int.__gt__, "less than or equal to"),
    ):
        text = config.text(limit) if limit in BROKER_PROPERTIES else None
        if text is not None and is_wrong(value, int(text)):
            raise ConfigError(f"{name} must be {words} {limit}", name=name)
