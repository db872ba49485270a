"""Attributes of BrokerConfig that are derived from several properties.

A layer is a mapping from properties to text. The first layer that has a property determines its value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkalog_broker.config.authorizer_settings import AUTHORIZER_CLASS, AuthorizerSettings
from kafkalog_broker.config.definition import invalid_value
from kafkalog_broker.config.listener_security import ListenerSecurity
from kafkalog_broker.config.listeners import (
    advertised_endpoints,
    check_client_listeners,
    parse_listeners,
    parse_security_map,
)
from kafkalog_broker.config.property_list import BROKER_PROPERTIES, first_value
from kafkalog_broker.config.property_relatives import MS_PER_UNIT, relatives
from kafkalog_broker.config.remote_storage_settings import (
    METADATA_MANAGER,
    METADATA_PREFIX,
    REMOTE_STORAGE,
    REMOTE_STORAGE_LISTENER,
    STORAGE_PREFIX,
    MetadataTopic,
    check_remote_storage_settings,
)

CONTRIBUTING_PROPERTIES = (
    "listener.security.protocol.map", "controller.listener.names", "broker.id", AUTHORIZER_CLASS, STORAGE_PREFIX,
    METADATA_PREFIX, METADATA_MANAGER, REMOTE_STORAGE_LISTENER, "remote.log.storage.manager.class.name",
)  # fmt: skip
"""Properties without an attribute of their own that contribute to attributes of BrokerConfig or to the options of
remote storage."""

_LISTENERS = ("listeners", "advertised.listeners")


def combined_properties(layers: tuple[Mapping[str, str], ...]) -> dict[str, Any]:
    """Return the values of the derived attributes by name.

    Raises:
        ConfigError: If a value is invalid or not supported.
    """
    retention, retention_name = _milliseconds(layers, "log.retention.ms")
    if retention == 0:
        raise invalid_value(retention_name, 0, "unlimited is -1, anything else is at least 1")
    roll, roll_name = _milliseconds(layers, "log.roll.ms")
    jitter, jitter_name = _milliseconds(layers, "log.roll.jitter.ms")
    for value, low, name in ((roll, 1, roll_name), (jitter, 0, jitter_name)):
        if value < low:
            raise invalid_value(name, value, f"Value must be at least {low}")
    controller_listeners = {name.upper() for name in _value(layers, "controller.listener.names") or ()}
    protocols = parse_security_map(_value(layers, "listener.security.protocol.map"))
    served, configured = (
        tuple(
            listener
            for listener in parse_listeners(name, _value(layers, name) or ())
            if listener.name not in controller_listeners
        )
        for name in _LISTENERS
    )
    check_client_listeners(served, protocols)
    if _value(layers, REMOTE_STORAGE):
        check_remote_storage_settings(layers, [listener.name for listener in served])
    return {
        "listeners": served,
        "listener_security": {
            listener.name: ListenerSecurity.of(listener.name, protocols[listener.name], layers) for listener in served
        },
        "advertised_listeners": advertised_endpoints(served, configured),
        "authorizer": AuthorizerSettings.of(_value(layers, AUTHORIZER_CLASS), layers[-1]),
        "remote_log_metadata_topic": MetadataTopic.of(layers),
        "log_dirs": _value(layers, "log.dirs") or _value(layers, "log.dir"),
        "log_retention_ms": max(retention, -1),
        "log_roll_ms": roll,
        "log_roll_jitter_ms": jitter,
        "log_flush_interval_ms": _milliseconds(layers, "log.flush.interval.ms")[0],
    }


def _value(layers: tuple[Mapping[str, str], ...], name: str) -> Any:
    return BROKER_PROPERTIES[name].parse(first_value(layers, name))


def _milliseconds(layers: tuple[Mapping[str, str], ...], name: str) -> tuple[int, str]:
    """Return a time in ms and the property that it comes from: the first relative with a value."""
    for relative in relatives(name):
        value = _value(layers, relative)
        if value is not None:
            return value * MS_PER_UNIT.get(relative.rpartition(".")[2], 1), relative
    raise AssertionError(f"{name} has no default")
