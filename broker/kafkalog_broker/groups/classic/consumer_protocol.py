"""Subscriptions and assignments that consumers put into JoinGroup and SyncGroup (ConsumerProtocol).

Subscriptions and assignments of versions 0 to 3; what a later one has in addition stands at the end and is passed over.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PROTOCOL_TYPE = "consumer"
"""The protocol type of groups whose members are consumers (Connect's is "connect")."""

_HEAD = struct.Struct(">hi")  # version, number of topics
_LENGTH = struct.Struct(">h")
_COUNT = struct.Struct(">i")
_NEWEST = 3

NamedPartitions = Mapping[str, Sequence[int]]


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a ConsumerProtocolSubscription of any version: version 0 is the head of them all.

    None when it is no such subscription, which is no error: other clients may use the protocol type "consumer" too.
    """
    try:
        _, topics, _ = _topics(metadata)
    except (struct.error, ValueError):
        return None
    return frozenset(topics)


@dataclass(frozen=True, slots=True)
class Subscription:
    """owned: partitions that the member has, by name of topic; none before version 1. rack_id: since version 3."""

    version: int
    topics: tuple[str, ...]
    owned: NamedPartitions
    rack_id: str | None


def parse_subscription(metadata: bytes) -> Subscription:
    """Raises ValueError for bytes that are none."""
    try:
        version, topics, at = _topics(metadata)
        at = _after_user_data(metadata, at)[1]
        owned: NamedPartitions = {}
        rack = None
        if version >= 1:
            owned, at = _partitions(metadata, at)
        if version >= 2:
            at += _COUNT.size  # the generation
        if version >= 3:
            (length,) = _LENGTH.unpack_from(metadata, at)
            rack = None if length < 0 else _text(metadata, at)[0]
    except struct.error as error:
        raise ValueError(f"the subscription is cut short: {error}") from None
    return Subscription(version, tuple(topics), owned, rack or None)


def parse_assignment(assignment: bytes) -> tuple[NamedPartitions, bytes]:
    """Partitions by name of topic, and user data. Raises ValueError for bytes that are no assignment."""
    try:
        if _LENGTH.unpack_from(assignment)[0] < 0:
            raise ValueError("the assignment has a negative version")
        partitions, at = _partitions(assignment, _LENGTH.size)
        user_data, _ = _after_user_data(assignment, at)
    except struct.error as error:
        raise ValueError(f"the assignment is cut short: {error}") from None
    return partitions, user_data


def assignment_of(partitions: NamedPartitions, version: int) -> bytes:
    """A ConsumerProtocolAssignment; a version that is not known is written as the newest."""
    parts = [_HEAD.pack(min(version, _NEWEST), len(partitions))]
    for topic, numbers in partitions.items():
        name = topic.encode()
        parts += [_LENGTH.pack(len(name)), name, struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)]
    return b"".join((*parts, _COUNT.pack(-1)))


def _topics(metadata: bytes) -> tuple[int, list[str], int]:
    """Version, topics, and the position after them."""
    version, count = _HEAD.unpack_from(metadata)
    if version < 0 or count < 0:
        raise ValueError(f"version {version} with {count} topics")
    at = _HEAD.size
    topics = []
    for _ in range(count):
        topic, at = _text(metadata, at)
        topics.append(topic)
    return version, topics, at


def _text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(data, at)
    at += _LENGTH.size
    if length < 0 or at + length > len(data):
        raise ValueError(f"a text of {length} bytes at {at}, of {len(data)}")
    return data[at : at + length].decode(), at + length


def _after_user_data(data: bytes, at: int) -> tuple[bytes, int]:
    (length,) = _COUNT.unpack_from(data, at)
    at += _COUNT.size
    if length > len(data) - at:
        raise ValueError(f"user data of {length} bytes at {at}, of {len(data)}")
    end = at + max(length, 0)
    return data[at:end], end


def _partitions(data: bytes, at: int) -> tuple[NamedPartitions, int]:
    (count,) = _COUNT.unpack_from(data, at)
    at += _COUNT.size
    found: dict[str, Sequence[int]] = {}
    for _ in range(max(count, 0)):
        topic, at = _text(data, at)
        (numbers,) = _COUNT.unpack_from(data, at)
        at += _COUNT.size
        if not 0 <= numbers <= (len(data) - at) // _COUNT.size:
            raise ValueError(f"{numbers} partitions at {at}, of {len(data)} bytes")
        found[topic] = struct.unpack_from(f">{numbers}i", data, at)
        at += numbers * _COUNT.size
    return found, at
