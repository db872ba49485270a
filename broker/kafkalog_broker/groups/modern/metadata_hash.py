"""Hash of the topics that a group subscribes to. If it changes, the group needs a new assignment (KIP-1101).

Computed as in Kafka (coordinator.group.Utils), so that a group is not rebalanced when it moves between a Kafka broker
and this one: XXH3 with 64 bits over little-endian numbers and UTF-16 code units.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from uuid import UUID

import xxhash

from kafkalog_broker.storage.topic import Topic

_CACHED_TOPICS = 1 << 14  # bounds the cache to a few MB
_MAGIC = b"\0"
_I32, _U64, _TWO_U64 = struct.Struct("<i"), struct.Struct("<Q"), struct.Struct("<QQ")


def topic_hash(topic: Topic, rack: str | None) -> int:
    """Return the hash of one topic. `rack` is the rack of this broker, which has the only replica."""
    return _topic_hash(topic.name, topic.id, topic.partitions, rack)


@lru_cache(_CACHED_TOPICS)
def _topic_hash(name: str, topic_id: UUID, partitions: int, rack: str | None) -> int:
    racks = b"" if rack is None else _I32.pack(len(rack)) + _text(rack)
    high, low = divmod(topic_id.int, 1 << 64)
    head = _MAGIC + _TWO_U64.pack(high, low) + _text(name) + _I32.pack(partitions)
    return xxhash.xxh3_64_intdigest(head + b"".join(_I32.pack(index) + racks for index in range(partitions)))


def group_hash(topics: Iterable[tuple[str, int]]) -> int:
    """Return the metadata hash of a group from (name, topic hash) of existing topics: signed, 0 without topics."""
    data = b"".join(_U64.pack(value) for _, value in sorted(topics) if value)
    if not data:
        return 0
    value = xxhash.xxh3_64_intdigest(data)
    return value - 2**64 if value >= 2**63 else value


def _text(value: str) -> bytes:
    """Return the bytes to hash for a text: its UTF-16 code units, followed by their number."""
    units = value.encode("utf-16-le")
    return units + _I32.pack(len(units) // 2)
