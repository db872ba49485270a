"""Topic of this broker, and Kafka's rules for topic names."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_spark.format.names import MAX_TOPIC_NAME_LENGTH, valid_topic_name

_NO_CONFIGS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Topic:
    """Entry of the topic registry.

    Attributes:
        partitions: Number of partitions.
        configs: Values of overridden properties, by name. Do not change it in place.
    """

    name: str
    id: uuid.UUID
    partitions: int
    configs: Mapping[str, str] = field(default_factory=lambda: _NO_CONFIGS)


def check_topic_name(name: str) -> None:
    """Raise BrokerError INVALID_TOPIC_EXCEPTION unless a new topic may have this name.

    Rules and texts are those of Kafka's `Topic.validate`.
    """
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > MAX_TOPIC_NAME_LENGTH:
        reason = f"the length of '{name}' is longer than the max allowed length {MAX_TOPIC_NAME_LENGTH}"
    elif not valid_topic_name(name):
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise BrokerError(ErrorCode.invalid_topic_exception, f"Topic name is invalid: {reason}")
