"""Rules between the properties of consumer groups (GroupCoordinatorConfig), and assignors that are not served."""

from __future__ import annotations

from collections.abc import Callable

from kafkalog_broker.config.definition import ConfigError

ASSIGNORS = ("uniform", "range")
_LIMITED = ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")


def check_consumer_groups(number: Callable[[str], int], assignors: tuple[str, ...]) -> None:
    """number: the value of a property. Raises ConfigError, in Kafka's words."""
    for what in _LIMITED:
        name, lowest, highest = (f"group.consumer.{prefix}{what}" for prefix in ("", "min.", "max."))
        value, low, high = map(number, (name, lowest, highest))
        _require(high >= low, highest, f"greater than or equal to {lowest}")
        _require(value >= low, name, f"greater than or equal to {lowest}")
        _require(value <= high, name, f"less than or equal to {highest}")
    heartbeat, session = "group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"
    _require(number(heartbeat) < number(session), heartbeat, f"less than {session}")
    if not assignors or not set(assignors) <= set(ASSIGNORS):
        raise ConfigError(
            f"Invalid value {','.join(assignors)[:200]} for configuration "
            f"group.consumer.assignors: this broker has {' and '.join(ASSIGNORS)}",
            name="group.consumer.assignors",
        )


def _require(holds: bool, name: str, what: str) -> None:
    if not holds:
        raise ConfigError(f"{name} must be {what}", name=name)
