"""Checks of property names: unknown, misspelt and dangerous names, and properties without effect."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Set

from kafkalog_broker.config.authorizer_settings import AUTHORIZER_PROPERTIES
from kafkalog_broker.config.definition import ConfigError, invalid_value
from kafkalog_broker.config.listener_security import LISTENER_PREFIX, MECHANISM_PROPERTIES, listener_property
from kafkalog_broker.config.property_list import BROKER_PROPERTIES
from kafkalog_broker.config.refused_properties import REFUSED
from kafkalog_broker.config.remote_storage_settings import plugin_prefixes

MIN_SIMILARITY = 0.85
"""Lowest similarity (difflib's ratio) at which a name counts as misspelt. Properties of a newer Kafka that only share
words with a known one are less similar."""

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
    """Return the error for an unknown property, with the nearest known name as a hint."""
    nearest = nearest_property(name)
    hint = None if nearest is None else f"did you mean {nearest}?"
    return ConfigError(f"Unknown broker property {name[:200]!r}", name=name, hint=hint)


def nearest_property(name: str) -> str | None:
    """Return the known property that `name` most likely misspells, or None if none is near."""
    return next(iter(difflib.get_close_matches(_base_name(name), _KNOWN, n=1, cutoff=MIN_SIMILARITY)), None)


def is_dangerous(name: str) -> bool:
    """Return True if ignoring this unknown property could weaken security or lose data.

    These are unknown properties with a security prefix, and likely misspellings of properties of security, retention
    or flushing.
    """
    nearest = nearest_property(name) or ""
    return _base_name(name).startswith(_SECURITY) or nearest.startswith((*_SECURITY, *_RETENTION_AND_FLUSH))


def unserved_note(names: Iterable[str], served: Set[str]) -> str:
    """Return an addition to a log line that lists the changed properties without effect; empty if all have one.

    Args:
        names: Changed properties.
        served: Properties that this broker acts on.
    """
    unserved = sorted(set(names) - served)
    return f"; without effect in this broker: {', '.join(unserved)}" if unserved else ""


def check_text(name: str, text: str) -> None:
    """Check the value of a property by itself.

    Raises:
        ConfigError: If the property is unknown, its value invalid, or ignoring it would be unsafe.
    """
    if name.startswith(LISTENER_PREFIX):
        general = listener_property(name)  # None for properties of listeners that are accepted without effect
        if general is not None:
            BROKER_PROPERTIES[general].parse(text)
        return
    if name in AUTHORIZER_PROPERTIES:
        return  # AuthorizerSettings checks them
    if name not in BROKER_PROPERTIES:
        raise unknown_property(name)
    value = BROKER_PROPERTIES[name].parse(text)
    if name in REFUSED and value not in ("", (), False, None):
        raise invalid_value(name, text, REFUSED[name])


def _base_name(name: str) -> str:
    """Return a name without the prefixes of a listener and a mechanism.

    `listener.name.external.plain.sasl.jaas.config` becomes `sasl.jaas.config`.
    """
    if not name.startswith(LISTENER_PREFIX):
        return name
    rest = name.removeprefix(LISTENER_PREFIX).partition(".")[2]
    of_mechanism = rest.partition(".")[2]
    return of_mechanism if of_mechanism.startswith("sasl.") or of_mechanism in MECHANISM_PROPERTIES else rest
