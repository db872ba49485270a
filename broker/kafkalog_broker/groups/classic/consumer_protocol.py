"""Subscriptions and assignments that consumers put into JoinGroup and SyncGroup (Kafka's ConsumerProtocol).

A version later than the latest known one is read and written as the latest known one: later fields come last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafkalog_spark.format.messages import Message, message

PROTOCOL_TYPE = "consumer"  # the protocol type of groups whose members are consumers (Connect's is "connect")

_SUBSCRIPTION, _ASSIGNMENT = message("ConsumerProtocolSubscription"), message("ConsumerProtocolAssignment")
_NEWEST = 3

NamedPartitions = Mapping[str, Sequence[int]]


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Topics of a subscription of any version (version 0 is the head of all). None where it is none, which is no
    error: other clients may use the protocol type "consumer" too."""
    try:
        return frozenset(_read(_SUBSCRIPTION, metadata, 0).topics)
    except ValueError:
        return None


def parse_subscription(metadata: bytes) -> Any:
    """A ConsumerProtocolSubscription. Raises ValueError for bytes that are none."""
    return _read(_SUBSCRIPTION, metadata)


def parse_assignment(assignment: bytes) -> tuple[NamedPartitions, bytes]:
    """Partitions by name of topic, and user data. Raises ValueError for bytes that are no assignment."""
    partitions, user_data = _read(_ASSIGNMENT, assignment)
    return dict(partitions), user_data or b""


def assignment_of(partitions: NamedPartitions, version: int) -> bytes:
    return _ASSIGNMENT.write[min(version, _NEWEST)]((partitions.items(), None))


def version_of(data: bytes) -> int:
    return int.from_bytes(data[:2], "big", signed=True)


def _read(kind: Message, data: bytes, newest: int = _NEWEST) -> Any:
    version = version_of(data)
    if len(data) < 2 or version < 0:
        raise ValueError(f"{kind.name} of version {version} in {len(data)} bytes")
    return kind.read[min(version, newest)](data, 2)[0]
