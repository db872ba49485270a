"""The hash of the topics that a group subscribes to: when it changes, the group is assigned anew (KIP-1101).

As Kafka computes it (coordinator.group.Utils), so that neither broker rebalances a group that the other has left: XXH3
of 64 bits over numbers in little-endian order and characters of 16 bits.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from uuid import UUID

import xxhash

_MAGIC = b"\0"
_I32, _U64 = struct.Struct("<i"), struct.Struct("<Q")
_HALVES = struct.Struct(">QQ")
_NO_TOPIC = 0


@lru_cache(maxsize=1024)
def topic_hash(name: str, topic_id: UUID, partitions: int, rack: str | None) -> int:
    """rack: of the one replica, this broker."""
    high, low = _HALVES.unpack(topic_id.bytes)
    racks = b"" if rack is None else _I32.pack(len(rack)) + _text(rack)
    head = _MAGIC + _U64.pack(high) + _U64.pack(low) + _text(name) + _I32.pack(partitions)
    return xxhash.xxh3_64_intdigest(head + b"".join(_I32.pack(partition) + racks for partition in range(partitions)))


def group_hash(topics: Iterable[tuple[str, int]]) -> int:
    """Of (name, topic_hash) of the topics that exist; 0 for none. Signed, as the record holds it."""
    data = b"".join(_U64.pack(hashed) for _, hashed in sorted(topics) if hashed != _NO_TOPIC)
    if not data:
        return 0
    value = xxhash.xxh3_64_intdigest(data)
    return value - 2**64 if value >= 2**63 else value


def _text(value: str) -> bytes:
    """Hashes of text end with the number of its characters."""
    units = value.encode("utf-16-le")
    return units + _I32.pack(len(units) // 2)
