"""Definitions of configuration properties: name, type, default, allowed values, what it does (Kafka's ConfigDef).

A property's value is text, as in server.properties and in the AlterConfigs APIs. `parse` makes a Python value of it,
`text_of` the text that DescribeConfigs gives back. Errors have Kafka's words, which clients and their tests read.
"""

from __future__ import annotations

import enum
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from kafkalog_spark.errors import KafkalogError

Value = int | float | bool | str | tuple[str, ...] | None


class ConfigError(KafkalogError, ValueError):
    """A property is unknown or its value cannot be used. `name`: the property."""

    def __init__(self, what: str, *, name: str | None = None, hint: str | None = None) -> None:
        super().__init__(what, hint=hint)
        self.name = name


NO_JAVA = "classes of Java cannot be loaded"


def invalid_value(name: str, value: object, why: str, hint: str | None = None) -> ConfigError:
    """In Kafka's words (ConfigException)."""
    return ConfigError(f"Invalid value {str(value)[:200]} for configuration {name}: {why}", name=name, hint=hint)


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
    """Where a value comes from (DescribeConfigsResponse.ConfigSource). A smaller number wins, except that 3 < 4 < 5."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Update(enum.Enum):
    """True if a broker property may change while the broker runs, and for which brokers."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


Allowed = Mapping[str, Any]
"""Values that are allowed, as kafka_properties.json has it: `low`, `high` and `also` (one value outside of them),
`words` (of each item of a list; `fold`: in any case), `not_empty`, `throttled_replicas` or `address_limits`."""


def _complaint(allowed: Allowed, name: str, value: Any) -> tuple[str, str | None] | None:
    """Why a value of the property `name` is not allowed, and the part of it that is to blame (None: the whole text)."""
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
                what = f"{name} must be the literal '*' or a list of replicas in the following format: {_REPLICAS}"
                return what, f"[{', '.join(value)}]"
        case {"address_limits": _}:  # `address:number,...`, also with IPv6 addresses
            for item in filter(None, map(str.strip, str(value).split(","))):
                if not re.fullmatch(r"[0-9a-zA-Z\-%._:]+:\s*[0-9]{1,10}", item):
                    return "String must be a list of address:number, separated by commas", item
        case _:
            low, high = allowed.get("low"), allowed.get("high")
            if value != allowed.get("also"):
                if low is not None and value < low:
                    return f"Value must be at least {_number(low)}", None
                if high is not None and value > high:
                    return f"Value must be no more than {_number(high)}", None
    return None


_REPLICAS = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
_BOUNDS = {PropertyType.INT: 2**31, PropertyType.SHORT: 2**15, PropertyType.LONG: 2**63}


@dataclass(frozen=True, slots=True)
class Property:
    """Definition of a property. `default`: its text or None. `internal`: accepted, described only where it is set."""

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
        """The value that `text` means. Raises ConfigError with the property's name, the text and what is allowed."""
        if text is None:
            return None
        value = self._typed(text)
        complaint = None if self.allowed is None else _complaint(self.allowed, self.name, value)
        if complaint is not None:
            what, shown = complaint
            raise self._error(text if shown is None else shown, what)
        return value

    def text_of(self, text: str | None) -> str | None:
        """The text in the form in which DescribeConfigs shows it: numbers without blanks, lists without spaces."""
        return format_value(self._typed(text)) if text is not None else None

    def _typed(self, text: str) -> Value:
        kind, trimmed = self.type, text.strip()
        if kind is PropertyType.BOOLEAN:
            if trimmed.lower() not in ("true", "false"):
                raise self._error(text, "Expected value to be either true or false")
            return trimmed.lower() == "true"
        if kind in _BOUNDS:
            if not re.fullmatch(r"[+-]?[0-9]{1,20}", trimmed) or not -_BOUNDS[kind] <= int(trimmed) < _BOUNDS[kind]:
                raise self._error(text, f"Not a number of type {kind.name}")
            return int(trimmed)
        if kind is PropertyType.DOUBLE:
            number = _parse_java_double(trimmed)
            if number is None:
                raise self._error(text, f"Not a number of type {kind.name}")
            return number
        if kind is PropertyType.LIST:
            items = tuple(part.strip() for part in trimmed.split(",")) if trimmed else ()
            # Kafka drops duplicates wherever it validates a list by ConfigDef.ValidList.
            return items if self.allowed == {"throttled_replicas": True} else tuple(dict.fromkeys(items))
        return text if kind is PropertyType.PASSWORD else trimmed

    def _error(self, text: str, complaint: str) -> ConfigError:
        return invalid_value(self.name, "[hidden]" if self.is_sensitive else text, complaint)


def format_value(value: Value) -> str | None:
    """A value as Kafka writes it (ConfigDef.convertToString)."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _java_double(value)
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def _number(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else str(bound)


_DECIMAL = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_NOT_FINITE = {
    sign + word: value
    for word, number in (("NaN", math.nan), ("Infinity", math.inf))
    for sign, value in (("", number), ("+", number), ("-", -number))
}


def _parse_java_double(text: str) -> float | None:
    """Value of a decimal `text` by Double.parseDouble: `0.5f` is a number, `nan` and `0_5` are not. None if it is no
    number."""
    found = _DECIMAL.fullmatch(text)
    return float(found[1]) if found else _NOT_FINITE.get(text)


def _java_double(value: float) -> str:
    """Double.toString: plain from 0.001 to 10^7, otherwise 1.0E10."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    fraction = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{fraction}E{exponent + len(digits) - 1}"


# All properties of brokers and topics: Kafka 4.3's, and those that only this broker has.
#
# kafka_properties.json is made of Kafka's own definitions by tests/broker/config/write_properties.py.
# own_properties.json is written by hand, with entries of the same form; their names begin with `kafkalog.`. The
# properties on which this broker acts are the attributes of BrokerConfig and LogConfig.

FILE = Path(__file__).with_name("kafka_properties.json")
OWN_FILE = Path(__file__).with_name("own_properties.json")
OWN_PREFIX = "kafkalog."


def _property(entry: Mapping[str, Any]) -> Property:
    update, internal = Update(entry["update"]), entry.get("internal", False)
    default, allowed = entry.get("default"), entry.get("allowed")
    return Property(entry["name"], PropertyType[entry["type"]], default, allowed, entry["doc"], update, internal)


_ENTRIES = [*json.loads(FILE.read_bytes()), *json.loads(OWN_FILE.read_bytes())]

BROKER_PROPERTIES, TOPIC_PROPERTIES = (
    {entry["name"]: _property(entry) for entry in _ENTRIES if entry["kind"] == kind} for kind in ("broker", "topic")
)
BROKER_DEFAULTS: Mapping[str, str] = {
    entry["name"]: entry["broker_default"] for entry in _ENTRIES if "broker_default" in entry
}
"""Topic property -> the broker property that it takes its default from (ServerTopicConfigSynonyms). Where that one has
relatives in other units (log.retention.ms, .minutes, .hours), it is the first; `relatives` knows the rest."""


def first_value(layers: tuple[Mapping[str, str], ...], name: str) -> str | None:
    """The text of a property from the uppermost layer that has it, else its default."""
    return next((layer[name] for layer in layers if name in layer), BROKER_PROPERTIES[name].default)
