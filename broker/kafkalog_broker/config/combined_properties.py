"""What several of the broker's properties, each from the uppermost layer that has it, make together.

Layers are mappings of property to text, the upper one first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkalog_broker.config.authorizer_settings import CLASS, AuthorizerSettings
from kafkalog_broker.config.broker_properties import MS_PER_UNIT, relatives
from kafkalog_broker.config.definition import ConfigError, Value
from kafkalog_broker.config.kafka_properties import BROKER_PROPERTIES
from kafkalog_broker.config.listener_security import listener_security
from kafkalog_broker.config.listeners import advertised, parse_listeners, parse_security_map, served_listeners

PARTS = ("listener.security.protocol.map", "controller.listener.names", "broker.id", CLASS)
"""What attributes of BrokerConfig are made of besides the properties they are named after (`combined_properties`,
`BrokerConfig.from_properties`)."""


def first_value(layers: tuple[Mapping[str, str], ...], name: str) -> str | None:
    """The text of a property from the uppermost layer that has it, else its default."""
    for layer in layers:
        if name in layer:
            return layer[name]
    return BROKER_PROPERTIES[name].default


def _value(layers: tuple[Mapping[str, str], ...], name: str) -> Value:
    return BROKER_PROPERTIES[name].parse(first_value(layers, name))


def _milliseconds(layers: tuple[Mapping[str, str], ...], name: str) -> tuple[int, str]:
    """The value in ms and the property it came from: the first of the relatives that has a value."""
    for relative in relatives(name):
        value = _value(layers, relative)
        if value is not None:
            assert isinstance(value, int)
            return value * MS_PER_UNIT.get(relative.rpartition(".")[2], 1), relative
    raise AssertionError(f"{name} has no default")


def combined_properties(layers: tuple[Mapping[str, str], ...]) -> dict[str, Any]:
    """Attribute of BrokerConfig -> value, of those that no property holds alone. Raises ConfigError."""
    retention, retention_name = _milliseconds(layers, "log.retention.ms")
    if retention == 0:
        raise ConfigError(
            f"Invalid value 0 for configuration {retention_name}: unlimited is -1, anything else is at least 1",
            name=retention_name,
        )
    roll, roll_name = _milliseconds(layers, "log.roll.ms")
    jitter, jitter_name = _milliseconds(layers, "log.roll.jitter.ms")
    for value, low, name in ((roll, 1, roll_name), (jitter, 0, jitter_name)):
        if value < low:
            raise ConfigError(
                f"Invalid value {value} for configuration {name}: Value must be at least {low}", name=name
            )
    controller = _value(layers, "controller.listener.names") or ()
    protocols = parse_security_map(str(_value(layers, "listener.security.protocol.map")))
    listeners, named = (_value(layers, name) or () for name in ("listeners", "advertised.listeners"))
    assert isinstance(controller, tuple)
    assert isinstance(listeners, tuple)
    assert isinstance(named, tuple)
    served = served_listeners(parse_listeners("listeners", listeners), controller, protocols)
    return {
        "listeners": served,
        "listener_security": listener_security(served, protocols, layers),
        "advertised_listeners": advertised(served, parse_listeners("advertised.listeners", named), controller),
        "authorizer": AuthorizerSettings.of(str(_value(layers, CLASS) or ""), layers[-1]),
        "log_dirs": _value(layers, "log.dirs") or _value(layers, "log.dir"),
        "log_retention_ms": max(retention, -1),
        "log_roll_ms": roll,
        "log_roll_jitter_ms": jitter,
        "log_flush_interval_ms": _milliseconds(layers, "log.flush.interval.ms")[0],
    }
