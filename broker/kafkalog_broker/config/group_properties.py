"""Properties of groups, set by IncrementalAlterConfigs for the resource GROUP (Kafka: GroupConfig).

The default is the broker property of the same meaning, if there is one.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.definition import ConfigError, Property, PropertyType, invalid_value
from kafkalog_broker.config.property_list import BROKER_PROPERTIES
from kafkalog_broker.config.reset_duration import EARLIEST, LATEST, reset_duration_ms

_RESET = "share.auto.offset.reset"
_NUMBERS = (
    "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms", "consumer.assignment.interval.ms",
    "share.session.timeout.ms", "share.heartbeat.interval.ms", "share.record.lock.duration.ms",
    "share.delivery.count.limit", "share.partition.max.record.locks", "share.assignment.interval.ms",
    "streams.session.timeout.ms", "streams.heartbeat.interval.ms", "streams.num.standby.replicas",
    "streams.initial.rebalance.delay.ms", "streams.assignment.interval.ms",
)  # fmt: skip
BROKER_DEFAULTS_OF_GROUPS: Mapping[str, str] = {
    name: f"group.{name}" for name in _NUMBERS if f"group.{name}" in BROKER_PROPERTIES
}
"""Group property -> the broker property that is its default."""

_OTHERS = (
    Property(_RESET, PropertyType.STRING, "latest", None,
             "Where a share group begins in a partition that it has not read."),
    Property("share.isolation.level", PropertyType.STRING, "read_uncommitted",
             {"words": ("read_committed", "read_uncommitted")},
             "Whether a share group gets records of transactions that are open or aborted."),
    Property("share.renew.acknowledge.enable", PropertyType.BOOLEAN, "true", None,
             "Whether consumers of a share group may renew the lock of a record."),
)  # fmt: skip
GROUP_PROPERTIES: Mapping[str, Property] = {
    **{
        name: Property(name, PropertyType.INT, default.default, default.allowed or {"low": 0}, default.doc)
        for name, default in ((name, BROKER_PROPERTIES[other]) for name, other in BROKER_DEFAULTS_OF_GROUPS.items())
    },
    **{entry.name: entry for entry in _OTHERS},
}


def check_group_properties(overrides: Mapping[str, str], config: BrokerConfig) -> None:
    """Check the properties of a group. Raises ConfigError with Kafka's messages (GroupConfig.validate)."""
    for name, text in overrides.items():
        if name not in GROUP_PROPERTIES:
            raise ConfigError(f"Unknown group config name: {name}", name=name)
        GROUP_PROPERTIES[name].parse(text)
    for name in _NUMBERS:
        kind, _, setting = name.partition(".")
        for limit, is_within, words in (("min", operator.ge, "greater than"), ("max", operator.le, "less than")):
            bound = f"group.{kind}.{limit}.{setting}".replace(".num.standby", ".standby")
            bound_text = config.text(bound) if name in overrides and bound in BROKER_PROPERTIES else None
            if bound_text is not None and not is_within(int(overrides[name]), int(bound_text)):
                raise ConfigError(f"{name} must be {words} or equal to {bound}", name=name)
    for kind in ("consumer", "share", "streams"):
        name = f"{kind}.session.timeout.ms"
        heartbeat = _value(f"{kind}.heartbeat.interval.ms", overrides, config)
        session = _value(name, overrides, config)
        if session is not None and heartbeat is not None and session <= heartbeat:
            raise ConfigError(f"{name} must be greater than {kind}.heartbeat.interval.ms", name=name)
    reset = str(GROUP_PROPERTIES[_RESET].parse(overrides.get(_RESET, LATEST)))
    if reset not in (EARLIEST, LATEST) and reset_duration_ms(reset) is None:
        reason = "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
        raise invalid_value(_RESET, reset, f"Invalid value `{reset[:200]}` for configuration {_RESET}. {reason}")


def _value(name: str, overrides: Mapping[str, str], config: BrokerConfig) -> int | None:
    text = overrides.get(name)
    if text is None and name in BROKER_DEFAULTS_OF_GROUPS:
        text = config.text(BROKER_DEFAULTS_OF_GROUPS[name])
    return None if text is None else int(text)
