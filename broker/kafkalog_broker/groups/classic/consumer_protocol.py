"""Subscriptions and assignments that consumers put into JoinGroup and SyncGroup (Kafka's ConsumerProtocol).

Bytes of a later version than the latest supported one are read and written as the latest supported one, because new
versions only append fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kafkalog_spark.format.messages.internal import Message, message

PROTOCOL_TYPE = "consumer"  # protocol type of groups of consumers; Kafka Connect uses "connect"

_SUBSCRIPTION, _ASSIGNMENT = message("ConsumerProtocolSubscription"), message("ConsumerProtocolAssignment")
_LATEST = 3

NamedPartitions = Mapping[str, Sequence[int]]  # partitions by topic name


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics of a subscription. All versions begin with the fields of version 0.

    Returns:
        None if the bytes are not a subscription: other clients may use the protocol type "consumer" too.
    """
    try:
        return frozenset(_read(_SUBSCRIPTION, metadata, 0).topics)
    except ValueError:
        return None


def parse_subscription(metadata: bytes) -> Any:
    """Decode a ConsumerProtocolSubscription. Raises ValueError if the bytes are malformed."""
    return _read(_SUBSCRIPTION, metadata)


class Assignment(NamedTuple):
    """A ConsumerProtocolAssignment. `user_data` comes from a custom assignor."""

    partitions: NamedPartitions
    user_data: bytes


def parse_assignment(assignment: bytes) -> Assignment:
    """Decode a ConsumerProtocolAssignment. Raises ValueError if the bytes are malformed."""
    partitions, user_data = _read(_ASSIGNMENT, assignment)
    return Assignment(dict(partitions), user_data or b"")


def encode_assignment(partitions: NamedPartitions, version: int) -> bytes:
    """Encode a ConsumerProtocolAssignment without user data, in a version that the member understands."""
    return _ASSIGNMENT.write[min(version, _LATEST)]((partitions.items(), None))


def protocol_version(data: bytes) -> int:
    """Return the version of a subscription or assignment."""
    return int.from_bytes(data[:2], "big", signed=True)


def _read(kind: Message, data: bytes, latest: int = _LATEST) -> Any:
    version = protocol_version(data)
    if len(data) < 2 or version < 0:
        raise ValueError(f"{kind.name} of version {version} in {len(data)} bytes")
    return kind.read[min(version, latest)](data, 2)[0]
