"""Properties of groups (Kafka's GroupConfig), set by IncrementalAlterConfigs for the resource GROUP. The broker's own
property of that kind, where there is one, is the default."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from typing import Any

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.definition import BROKER_PROPERTIES, ConfigError, Property, PropertyType, invalid_value

_NUMBERS = (
    "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms", "consumer.assignment.interval.ms",
    "share.session.timeout.ms", "share.heartbeat.interval.ms", "share.record.lock.duration.ms",
    "share.delivery.count.limit", "share.partition.max.record.locks", "share.assignment.interval.ms",
    "streams.session.timeout.ms", "streams.heartbeat.interval.ms", "streams.num.standby.replicas",
    "streams.initial.rebalance.delay.ms", "streams.assignment.interval.ms",
)  # fmt: skip
BROKERS_OWN: Mapping[str, str] = {name: f"group.{name}" for name in _NUMBERS if f"group.{name}" in BROKER_PROPERTIES}
"""The property of the broker that a group's takes its default from."""

_OTHERS = (
    Property("share.auto.offset.reset", PropertyType.STRING, "latest", None,
             "Where a share group begins in a partition that it has not read."),
    Property("share.isolation.level", PropertyType.STRING, "read_uncommitted",
             {"words": ("read_committed", "read_uncommitted")},
             "Whether a share group gets records of transactions that are open or aborted."),
    Property("share.renew.acknowledge.enable", PropertyType.BOOLEAN, "true", None,
             "Whether consumers of a share group may renew the lock of a record."),
)  # fmt: skip
GROUP_PROPERTIES: Mapping[str, Property] = {
    **{
        own: Property(own, PropertyType.INT, entry.default, entry.allowed or {"low": 0}, entry.doc)
        for own, entry in ((own, BROKER_PROPERTIES[brokers]) for own, brokers in BROKERS_OWN.items())
    },
    **{entry.name: entry for entry in _OTHERS},
}


def check_group_properties(overrides: Mapping[str, str], config: BrokerConfig) -> None:
    """Raises ConfigError, in Kafka's words (GroupConfig.validate)."""
    for name, text in overrides.items():
        if name not in GROUP_PROPERTIES:
            raise ConfigError(f"Unknown group config name: {name}", name=name)
        GROUP_PROPERTIES[name].parse(text)
    for name in _NUMBERS:
        kind, _, what = name.partition(".")
        for limit, is_within, words in (("min", operator.ge, "greater than"), ("max", operator.le, "less than")):
            bound = f"group.{kind}.{limit}.{what}".replace(".num.standby", ".standby")
            set_to = config.text(bound) if name in overrides and bound in BROKER_PROPERTIES else None
            if set_to is not None and not is_within(int(overrides[name]), int(set_to)):
                raise ConfigError(f"{name} must be {words} or equal to {bound}", name=name)
    for kind in ("consumer", "share", "streams"):
        name = f"{kind}.session.timeout.ms"
        heartbeat = _value(f"{kind}.heartbeat.interval.ms", overrides, config)
        session = _value(name, overrides, config)
        if session is not None and heartbeat is not None and session <= heartbeat:
            raise ConfigError(f"{name} must be greater than {kind}.heartbeat.interval.ms", name=name)
    reset = str(GROUP_PROPERTIES[_RESET].parse(overrides.get(_RESET, LATEST)))
    if reset not in (EARLIEST, LATEST) and reset_duration_ms(reset) is None:
        why = "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
        raise invalid_value(_RESET, reset, f"Invalid value `{reset[:200]}` for configuration {_RESET}. {why}")


def _value(name: str, overrides: Mapping[str, str], config: BrokerConfig) -> int | None:
    text = overrides.get(name, config.text(BROKERS_OWN[name]) if name in BROKERS_OWN else None)
    return None if text is None else int(text)


EARLIEST, LATEST, BY_DURATION = "earliest", "latest", "by_duration:"
_RESET = "share.auto.offset.reset"
_PART = "([-+]?[0-9]{1,18})"
_DURATION = re.compile(
    rf"([-+]?)P(?:{_PART}D)?(?:T(?=[-+0-9])(?:{_PART}H)?(?:{_PART}M)?(?:{_PART}(?:[.,]([0-9]{{0,9}}))?S)?)?", re.I
)
_MS_OF_PARTS = (86_400_000, 3_600_000, 60_000, 1_000)


def reset_duration_ms(reset: str) -> int | None:
    """How far back share.auto.offset.reset goes, of `by_duration:` and a text for java.time.Duration.parse; None where
    it is no such duration, or a negative one."""
    found = _DURATION.fullmatch(reset.removeprefix(BY_DURATION)) if reset.startswith(BY_DURATION) else None
    if found is None or not any(found.groups()[1:]):
        return None
    sign, *parts, fraction = found.groups(default="")
    duration_ms = sum(int(part or 0) * ms for part, ms in zip(parts, _MS_OF_PARTS, strict=True))
    seconds = parts[-1]
    fraction_ms = int(fraction[:3].ljust(3, "0"))
    duration_ms += -fraction_ms if seconds.startswith("-") else fraction_ms
    return None if (duration_ms < 0) != (sign == "-") and duration_ms else abs(duration_ms)


# Properties of subscriptions to client metrics, the resource CLIENT_METRICS (ClientMetricsConfigs, KIP-714).

METRICS, INTERVAL_MS, MATCH = "metrics", "interval.ms", "match"
ALL_METRICS = "*"
DEFAULT_INTERVAL_MS = 300_000
INTERVALS_MS = range(100, 3_600_001)

CLIENT_METRICS_PROPERTIES: Mapping[str, Property] = {
    name: Property(name, kind, default, None, doc)
    for name, kind, default, doc in (
        (INTERVAL_MS, PropertyType.INT, str(DEFAULT_INTERVAL_MS), "How often clients push metrics, in ms."),
        (MATCH, PropertyType.LIST, "", "Clients that push: what=expression, all of which match."),
        (METRICS, PropertyType.LIST, "", "Prefixes of the names of metrics that are pushed."),
    )
}


def client_metrics_value(name: str, overrides: Mapping[str, str]) -> Any:
    """Parsed property of a subscription. Raises ConfigError."""
    entry = CLIENT_METRICS_PROPERTIES[name]
    return entry.parse(overrides.get(name, entry.default))
