"""Names of properties in a configuration: unknown, misspelt and dangerous ones."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from kafkalog_broker.config.definition import BROKER_PROPERTIES, ConfigError, invalid_value
from kafkalog_broker.config.listener_security import LISTENER_PREFIX, MECHANISM_PROPERTIES, listener_property
from kafkalog_broker.config.properties import AUTHORIZER_PROPERTIES, REFUSED, plugin_prefixes

MIN_SIMILARITY = 0.85
"""Least similarity (difflib's ratio) of a misspelt name. A new property that shares words with a known one is below."""

_KNOWN = BROKER_PROPERTIES.keys() | AUTHORIZER_PROPERTIES

_SECURITY = (
    "ssl.", "sasl.", "security.", "authorizer.", "super.users", "allow.everyone.", "listener", "advertised.listeners",
    "principal.", "connections.max.reauth.ms", "delegation.token.", *REFUSED,
)  # fmt: skip
_RETENTION_AND_FLUSH = (
    "log.dir",
    "log.retention.",
    "log.local.retention.",
    "log.cleanup.policy",
    "log.flush.interval.",
)


def unknown_names(static: Mapping[str, str]) -> list[str]:
    """Return the properties of a start that neither Kafka 4.3 nor a configured plugin defines."""
    plugins = plugin_prefixes((static,))
    return [name for name in static if _base_name(name) not in _KNOWN and not name.startswith(plugins)]


def unknown_property(name: str) -> ConfigError:
    """Error of an unknown property, which suggests the nearest known one."""
    nearest = nearest_property(name)
    hint = None if nearest is None else f"did you mean {nearest}?"
    return ConfigError(f"Unknown broker property {name[:200]!r}", name=name, hint=hint)


def nearest_property(name: str) -> str | None:
    """Return the known property that `name` most likely misspells, or None if none is near."""
    return next(iter(difflib.get_close_matches(_base_name(name), _KNOWN, n=1, cutoff=MIN_SIMILARITY)), None)


def is_dangerous(name: str) -> bool:
    """Return True if ignoring this unknown property could open the broker to others or lose data.

    That is a property of security, or one that most likely misspells a property of security, retention or durability.
    """
    nearest = nearest_property(name) or ""
    return _base_name(name).startswith(_SECURITY) or nearest.startswith((*_SECURITY, *_RETENTION_AND_FLUSH))


def check_text(name: str, text: str) -> None:
    """Check the value of a property by itself.

    Raises:
        ConfigError: If the property is unknown, its value invalid, or ignoring it would be unsafe.
    """
    if name.startswith(LISTENER_PREFIX):
        own = listener_property(name)  # None: a listener's limit or other security property, accepted without effect
        if own is not None:
            BROKER_PROPERTIES[own].parse(text)
        return
    if name in AUTHORIZER_PROPERTIES:
        return  # AuthorizerSettings checks them
    if name not in BROKER_PROPERTIES:
        raise unknown_property(name)
    value = BROKER_PROPERTIES[name].parse(text)
    if name in REFUSED and value not in ("", (), False, None):
        raise invalid_value(name, text, REFUSED[name])


def _base_name(name: str) -> str:
    """Remove the prefix of a listener and of a mechanism: `listener.name.external.plain.sasl.jaas.config` becomes
    `sasl.jaas.config`."""
    if not name.startswith(LISTENER_PREFIX):
        return name
    rest = name.removeprefix(LISTENER_PREFIX).partition(".")[2]
    of_mechanism = rest.partition(".")[2]
    return of_mechanism if of_mechanism.startswith("sasl.") or of_mechanism in MECHANISM_PROPERTIES else rest
