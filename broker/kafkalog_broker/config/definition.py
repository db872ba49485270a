"""Definition of a configuration property: name, type, default, allowed values, documentation (Kafka: ConfigDef).

A property's value is text, as in server.properties and in the AlterConfigs APIs. `Property.parse` converts it to a
Python value, `Property.text_of` to the text that DescribeConfigs returns. Error messages are Kafka's, because clients
and their tests compare them.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kafkalog_broker.config.java_double import java_double, parse_java_double
from kafkalog_spark.errors import KafkalogError

Value = int | float | bool | str | tuple[str, ...] | None


class ConfigError(KafkalogError, ValueError):
    """A property is unknown, or its value cannot be used. `name` is the property."""

    def __init__(self, what: str, *, name: str | None = None, hint: str | None = None) -> None:
        super().__init__(what, hint=hint)
        self.name = name


NO_JAVA = "classes of Java cannot be loaded"  # reason in errors about a class name


def invalid_value(name: str, value: object, reason: str, hint: str | None = None) -> ConfigError:
    """Return the error for an invalid value, with Kafka's message (ConfigException)."""
    return ConfigError(f"Invalid value {str(value)[:200]} for configuration {name}: {reason}", name=name, hint=hint)


class PropertyType(enum.IntEnum):
    """Types as DescribeConfigs numbers them (DescribeConfigsResponse.ConfigType)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Source(enum.IntEnum):
    """Source of a value (DescribeConfigsResponse.ConfigSource)."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class SourcedValue(NamedTuple):
    """A property in one source, as DescribeConfigs lists the synonyms of a property.

    Attributes:
        name: The property, or a relative of it.
        text: Value as given; None for a default of null.
        source: Layer or default that the value comes from.
    """

    name: str
    text: str | None
    source: Source


class Update(enum.Enum):
    """Whether a broker property may change while the broker runs, and for which brokers."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


Allowed = Mapping[str, Any]
"""Rule for the allowed values, as in kafka_properties.json: a range with `low`, `high` and `also` (one allowed value
outside the range), a set of `words` (for each item of a list; with `fold` in any case), or one of the rules
`not_empty`, `throttled_replicas` and `address_limits`."""

_REPLICAS_FORMAT = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
_BOUNDS = {PropertyType.INT: 2**31, PropertyType.SHORT: 2**15, PropertyType.LONG: 2**63}


@dataclass(frozen=True, slots=True)
class Property:
    """Definition of a property.

    Attributes:
        name: Name of the property.
        default: Default as text, or None.
        allowed: Rule for the allowed values, or None.
        internal: True if DescribeConfigs shows the property only if it is set.
    """

    name: str
    type: PropertyType
    default: str | None
    allowed: Allowed | None
    doc: str
    update: Update = Update.READ_ONLY
    internal: bool = False

    @property
    def is_sensitive(self) -> bool:
        return self.type is PropertyType.PASSWORD

    @property
    def read_only(self) -> bool:
        return self.update is Update.READ_ONLY

    def parse(self, text: str | None) -> Value:
        """Return the value of a text. Raises ConfigError with the property, the text and the allowed values."""
        if text is None:
            return None
        value = self._convert(text)
        invalid = None if self.allowed is None else _invalid_part(self.allowed, self.name, value)
        if invalid is not None:
            reason, part = invalid
            raise self._error(text if part is None else part, reason)
        return value

    def text_of(self, text: str | None) -> str | None:
        """Return a text in the form that DescribeConfigs shows: numbers without blanks, lists without spaces."""
        return format_value(self._convert(text)) if text is not None else None

    def _convert(self, text: str) -> Value:
        kind = self.type
        trimmed = text.strip()
        if kind is PropertyType.BOOLEAN:
            if trimmed.lower() not in ("true", "false"):
                raise self._error(text, "Expected value to be either true or false")
            return trimmed.lower() == "true"
        if kind in _BOUNDS:
            if not re.fullmatch(r"[+-]?[0-9]{1,20}", trimmed) or not -_BOUNDS[kind] <= int(trimmed) < _BOUNDS[kind]:
                raise self._error(text, f"Not a number of type {kind.name}")
            return int(trimmed)
        if kind is PropertyType.DOUBLE:
            number = parse_java_double(trimmed)
            if number is None:
                raise self._error(text, f"Not a number of type {kind.name}")
            return number
        if kind is PropertyType.LIST:
            items = tuple(part.strip() for part in trimmed.split(",")) if trimmed else ()
            # Kafka drops duplicates wherever it validates a list by ConfigDef.ValidList.
            return items if self.allowed == {"throttled_replicas": True} else tuple(dict.fromkeys(items))
        return text if kind is PropertyType.PASSWORD else trimmed

    def _error(self, text: str, reason: str) -> ConfigError:
        return invalid_value(self.name, "[hidden]" if self.is_sensitive else text, reason)


def format_value(value: Value) -> str | None:
    """Return the text of a value as Kafka writes it (ConfigDef.convertToString)."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return java_double(value)
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def _invalid_part(allowed: Allowed, name: str, value: Any) -> tuple[str, str | None] | None:
    """Return why a value is not allowed, and its invalid item (None for the whole value); None if it is allowed."""
    match allowed:
        case {"words": words}:
            fold = allowed.get("fold", False)
            for item in value if isinstance(value, tuple) else (str(value),):
                if item not in words and not (fold and item.lower() in map(str.lower, words)):
                    return f"String must be one of{' (case insensitive)' if fold else ''}: {', '.join(words)}", item
        case {"not_empty": _}:
            return ("String must be non-empty", None) if value == "" else None
        case {"throttled_replicas": _}:  # ThrottledReplicaListValidator
            if value != ("*",) and not all(re.fullmatch(r"[0-9]+:[0-9]+", item) for item in value):
                message = (
                    f"{name} must be the literal '*' or a list of replicas in the following format: {_REPLICAS_FORMAT}"
                )
                return message, f"[{', '.join(value)}]"
        case {"address_limits": _}:  # `address:number,...`, also with IPv6 addresses
            for item in filter(None, map(str.strip, str(value).split(","))):
                if not re.fullmatch(r"[0-9a-zA-Z\-%._:]+:\s*[0-9]{1,10}", item):
                    return "String must be a list of address:number, separated by commas", item
        case _:
            low, high = allowed.get("low"), allowed.get("high")
            if value != allowed.get("also"):
                if low is not None and value < low:
                    return f"Value must be at least {_format_bound(low)}", None
                if high is not None and value > high:
                    return f"Value must be no more than {_format_bound(high)}", None
    return None


def _format_bound(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else str(bound)
