"""Properties of remote storage: their names and checks, and the configuration of its metadata topic."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from kafkalog_broker.config.definition import NO_JAVA, invalid_value
from kafkalog_broker.config.property_list import BROKER_PROPERTIES, first_value

REMOTE_STORAGE = "remote.log.storage.system.enable"
REMOTE_STORAGE_LISTENER = "remote.log.metadata.manager.listener.name"
METADATA_MANAGER = "remote.log.metadata.manager.class.name"
STORAGE_PREFIX, METADATA_PREFIX = "remote.log.storage.manager.impl.prefix", "remote.log.metadata.manager.impl.prefix"

AS_RETENTION = -2
"""Value of local.retention.ms and local.retention.bytes that stands for retention.ms and retention.bytes."""


def check_local_retention(name: str, total: int, local: int) -> None:
    """Check that the local log does not keep more than the whole log.

    In Kafka: LogConfig.validateRemoteStorageRetentionSize, validateRemoteStorageRetentionTime.

    Args:
        name: The topic property retention.bytes or retention.ms.
        total: Its value.
        local: Value of the local property.

    Raises:
        ConfigError: If `local` is larger.
    """
    if total < 0 or local == AS_RETENTION:
        return
    if local == -1:
        raise invalid_value(f"local.{name}", local, f"Value must not be -1 as {name} value is set as {total}.")
    if local > total:
        raise invalid_value(f"local.{name}", local, f"Value must not be more than {name} property value: {total}")


def plugin_prefixes(layers: tuple[Mapping[str, str], ...]) -> tuple[str, str]:
    """Return the prefixes of the properties of remote storage (`rsm.config.`) and its metadata manager
    (`rlmm.config.`)."""
    storage, metadata = (first_value(layers, name) or "" for name in (STORAGE_PREFIX, METADATA_PREFIX))
    return storage, metadata


@dataclass(frozen=True, slots=True)
class MetadataTopic:
    """Configuration with which `__remote_log_metadata` is created (Kafka: TopicBasedRemoteLogMetadataManagerConfig).

    Attributes:
        retention_ms: -1 for unlimited.
    """

    partitions: int = 50
    retention_ms: int = -1
    min_isr: int = 2

    @classmethod
    def of(cls, layers: tuple[Mapping[str, str], ...]) -> Self:
        """Read `rlmm.config.remote.log.metadata.topic.*`. Raises ConfigError."""
        prefix = plugin_prefixes(layers)[1] + "remote.log.metadata.topic."

        def number(name: str, default: int, low: int) -> int:
            text = layers[-1].get(prefix + name, str(default)).strip()
            if not re.fullmatch(r"[+-]?[0-9]{1,18}", text) or int(text) < low:
                raise invalid_value(prefix + name, text, f"Value must be at least {low}")
            return int(text)

        number("replication.factor", 3, 1)  # checked only: this cluster has one node
        retention = number("retention.ms", -1, -1)
        return cls(number("num.partitions", 50, 1), retention, number("min.isr", 2, 1))


def check_remote_storage_settings(layers: tuple[Mapping[str, str], ...], listeners: Iterable[str]) -> None:
    """Check the properties of a broker with remote storage. Raises ConfigError with Kafka's messages."""
    listener = first_value(layers, REMOTE_STORAGE_LISTENER)
    if listener is not None and listener not in listeners:
        reason = f"Should be set as a listener name within valid broker listener name list: {','.join(listeners)}"
        raise invalid_value(REMOTE_STORAGE_LISTENER, listener, reason)
    manager = first_value(layers, METADATA_MANAGER)
    known = BROKER_PROPERTIES[METADATA_MANAGER].default
    if manager != known:
        raise invalid_value(METADATA_MANAGER, manager, NO_JAVA, f"the supported class is {known}")
