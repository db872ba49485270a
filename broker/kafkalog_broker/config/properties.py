"""Settings that several of the broker's properties make together, each from the uppermost layer that has it. Layers are
mappings of property to text, the upper one first."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, Self

from kafkalog_broker.config.definition import BROKER_PROPERTIES, NO_JAVA, ConfigError, first_value, invalid_value
from kafkalog_broker.config.listener_security import ListenerSecurity
from kafkalog_broker.config.listeners import advertised, check_served, parse_listeners, parse_security_map
from kafkalog_spark.errors import CorruptFile
from kafkalog_spark.format.meta_properties import parse_properties

# Who sets these relies on them: running without would be worse than not starting. Name to what is missing.
REFUSED = {
    "create.topic.policy.class.name": f"{NO_JAVA}, so no topic would be refused",
    "alter.config.policy.class.name": f"{NO_JAVA}, so no change would be refused",
    "client.quota.callback.class": f"{NO_JAVA}, so no client would be held to a quota",
    "config.providers": "values of the form ${provider:path:key} cannot be filled in",
}

# Relatives in other units and fallbacks, the one that wins first.
_RELATIVES = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ("log.dirs", "log.dir"),
)
MS_PER_UNIT = {"minutes": 60_000, "hours": 3_600_000}
# Kafka resolves these but does not list them as synonyms (DynamicBrokerConfig.brokerConfigSynonyms).
_NOT_LISTED = {"log.roll.jitter.ms", "log.roll.jitter.hours", "log.dirs", "log.dir"}


def note_of_unserved(names: Iterable[str], served: Set[str]) -> str:
    """Addition to a log line about a change where properties in it have no effect."""
    unserved = sorted(set(names) - served)
    return f"; without effect in this broker: {', '.join(unserved)}" if unserved else ""


def relatives(name: str) -> tuple[str, ...]:
    """`name` and the properties that stand in for it where it is not set, in the order in which they are asked."""
    return next((group for group in _RELATIVES if group[0] == name), (name,))


def listed_relatives(name: str) -> tuple[str, ...]:
    """`name` and its relatives as DescribeConfigs lists them: also those that win over it."""
    if name in _NOT_LISTED:
        return (name,)
    return next((group for group in _RELATIVES if name in group), (name,))


# server.properties and what the command line adds to it.

# Without a configuration file: a broker for one machine and for tests. What differs from Kafka's defaults: only this
# machine can connect, and a group's first rebalance does not wait 3 s for members that never come.
EMBEDDED_DEFAULTS: Mapping[str, str] = {
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "group.initial.rebalance.delay.ms": "0",
}


def read_server_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """The file's properties, in the format of java.util.Properties. Raises ConfigError when it cannot be read."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise ConfigError(f"{os.fspath(path)} cannot be read: {error.strerror or error}") from None
    try:
        # Kafka's scripts hand values on as they stand after the equals sign, without white space at the end.
        return {name: value.strip() for name, value in parse_properties(data).items()}
    except CorruptFile as error:
        raise ConfigError(error.what).at(path=os.fspath(path)) from None


def parse_overrides(texts: Iterable[str]) -> dict[str, str]:
    """`name=value` of --override. Raises ConfigError for a text without an equals sign."""
    overrides = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise ConfigError(f"--override {text!r}: expected NAME=VALUE, e.g. num.partitions=4")
        overrides[name.strip()] = value.strip()
    return overrides


# Who decides who may do what: `authorizer.class.name` and the properties of Kafka's standard authorizer.

CLASS = "authorizer.class.name"
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SUPER_USERS = "super.users"
ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"

AUTHORIZER_PROPERTIES = frozenset({SUPER_USERS, ALLOW_EVERYONE})  # Kafka's brokers have no definition of them


@dataclass(frozen=True, slots=True)
class AuthorizerSettings:
    """super_users: principals that may do everything. allow_everyone: what holds for a resource without any ACL."""

    super_users: frozenset[str] = frozenset()
    allow_everyone: bool = False

    @classmethod
    def of(cls, class_name: str | None, properties: Mapping[str, str]) -> Self | None:
        """None: there is no authorizer, and everybody may do everything. Raises ConfigError."""
        if not class_name:
            return None
        if class_name != STANDARD:
            raise invalid_value(CLASS, class_name, NO_JAVA, f"the authorizer that there is: {STANDARD}")
        texts = (text.strip() for text in properties.get(SUPER_USERS, "").split(";"))
        super_users = frozenset(filter(None, texts))
        wrong = next((text for text in sorted(super_users) if not all(text.partition(":")[::2])), None)
        if wrong is not None:
            why = "expected a string in format principalType:principalName"
            raise invalid_value(SUPER_USERS, wrong, why, "for example super.users=User:admin;User:CN=ops,O=Example")
        # As Java's Boolean.valueOf: anything but true is false.
        return cls(super_users, properties.get(ALLOW_EVERYONE, "").strip().lower() == "true")


REMOTE_STORAGE = "remote.log.storage.system.enable"
REMOTE_STORAGE_LISTENER = "remote.log.metadata.manager.listener.name"
METADATA_MANAGER = "remote.log.metadata.manager.class.name"
STORAGE_PREFIX, METADATA_PREFIX = "remote.log.storage.manager.impl.prefix", "remote.log.metadata.manager.impl.prefix"

PARTS = (
    "listener.security.protocol.map", "controller.listener.names", "broker.id", CLASS, STORAGE_PREFIX, METADATA_PREFIX,
    METADATA_MANAGER, REMOTE_STORAGE_LISTENER, "remote.log.storage.manager.class.name",
)  # fmt: skip
"""Properties behind attributes of BrokerConfig besides the properties they are named after (`combined_properties`,
`BrokerConfig.from_properties`), and those that remote storage's options are made of."""


AS_RETENTION = -2  # local.retention.ms and local.retention.bytes: as retention.ms and retention.bytes are


def check_local_retention(name: str, total: int, local: int) -> None:
    """Raise ConfigError where the local log would keep more than all of it. name: of the topic property with `total`
    (LogConfig.validateRemoteStorageRetentionSize, validateRemoteStorageRetentionTime)."""
    if total < 0 or local == AS_RETENTION:
        return
    if local == -1:
        raise invalid_value(f"local.{name}", local, f"Value must not be -1 as {name} value is set as {total}.")
    if local > total:
        raise invalid_value(f"local.{name}", local, f"Value must not be more than {name} property value: {total}")


def plugin_prefixes(layers: tuple[Mapping[str, str], ...]) -> tuple[str, str]:
    """Prefixes of the properties of remote storage (`rsm.config.`) and of its metadata's manager (`rlmm.config.`)."""
    storage, metadata = (first_value(layers, name) or "" for name in (STORAGE_PREFIX, METADATA_PREFIX))
    return storage, metadata


@dataclass(frozen=True, slots=True)
class MetadataTopic:
    """How `__remote_log_metadata` is made, of `rlmm.config.remote.log.metadata.topic.*`
    (TopicBasedRemoteLogMetadataManagerConfig). retention_ms: -1 is for ever."""

    partitions: int = 50
    retention_ms: int = -1
    min_isr: int = 2

    @classmethod
    def of(cls, layers: tuple[Mapping[str, str], ...]) -> Self:
        """Raises ConfigError."""
        prefix = plugin_prefixes(layers)[1] + "remote.log.metadata.topic."

        def number(name: str, default: int, low: int) -> int:
            text = layers[-1].get(prefix + name, str(default)).strip()
            if not re.fullmatch(r"[+-]?[0-9]{1,18}", text) or int(text) < low:
                raise invalid_value(prefix + name, text, f"Value must be at least {low}")
            return int(text)

        number("replication.factor", 3, 1)  # one here, whatever it says
        retention = number("retention.ms", -1, -1)
        return cls(number("num.partitions", 50, 1), retention, number("min.isr", 2, 1))


_LISTENERS = ("listeners", "advertised.listeners")


def _check_remote_storage(layers: tuple[Mapping[str, str], ...], listeners: Iterable[str]) -> None:
    """Rules of a broker with remote storage, in Kafka's words. Raises ConfigError."""
    listener = first_value(layers, REMOTE_STORAGE_LISTENER)
    if listener is not None and listener not in listeners:
        why = f"Should be set as a listener name within valid broker listener name list: {','.join(listeners)}"
        raise invalid_value(REMOTE_STORAGE_LISTENER, listener, why)
    manager, known = first_value(layers, METADATA_MANAGER), BROKER_PROPERTIES[METADATA_MANAGER].default
    if manager != known:
        raise invalid_value(METADATA_MANAGER, manager, NO_JAVA, f"the one that there is: {known}")


def _value(layers: tuple[Mapping[str, str], ...], name: str) -> Any:
    return BROKER_PROPERTIES[name].parse(first_value(layers, name))


def _milliseconds(layers: tuple[Mapping[str, str], ...], name: str) -> tuple[int, str]:
    """The value in ms and the property it came from: the first of the relatives that has a value."""
    for relative in relatives(name):
        value = _value(layers, relative)
        if value is not None:
            return value * MS_PER_UNIT.get(relative.rpartition(".")[2], 1), relative
    raise AssertionError(f"{name} has no default")


def combined_properties(layers: tuple[Mapping[str, str], ...]) -> dict[str, Any]:
    """Attribute of BrokerConfig -> value, of those that no property holds alone. Raises ConfigError."""
    retention, retention_name = _milliseconds(layers, "log.retention.ms")
    if retention == 0:
        raise invalid_value(retention_name, 0, "unlimited is -1, anything else is at least 1")
    roll, roll_name = _milliseconds(layers, "log.roll.ms")
    jitter, jitter_name = _milliseconds(layers, "log.roll.jitter.ms")
    for value, low, name in ((roll, 1, roll_name), (jitter, 0, jitter_name)):
        if value < low:
            raise invalid_value(name, value, f"Value must be at least {low}")
    controller = {name.upper() for name in _value(layers, "controller.listener.names") or ()}
    protocols = parse_security_map(_value(layers, "listener.security.protocol.map"))
    served, named = (
        tuple(one for one in parse_listeners(name, _value(layers, name) or ()) if one.name not in controller)
        for name in _LISTENERS
    )
    check_served(served, protocols)
    if _value(layers, REMOTE_STORAGE):
        _check_remote_storage(layers, [listener.name for listener in served])
    return {
        "listeners": served,
        "listener_security": {
            listener.name: ListenerSecurity.of(listener.name, protocols[listener.name], layers) for listener in served
        },
        "advertised_listeners": advertised(served, named),
        "authorizer": AuthorizerSettings.of(_value(layers, CLASS), layers[-1]),
        "remote_log_metadata_topic": MetadataTopic.of(layers),
        "log_dirs": _value(layers, "log.dirs") or _value(layers, "log.dir"),
        "log_retention_ms": max(retention, -1),
        "log_roll_ms": roll,
        "log_roll_jitter_ms": jitter,
        "log_flush_interval_ms": _milliseconds(layers, "log.flush.interval.ms")[0],
    }
