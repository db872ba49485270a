"""The order in which Java goes through a hash map.

Kafka's assignors, of share groups too, go through maps of members, topics and partitions, so which member gets which
partition depends on that order. Here it is part of the contract: the same members get the same partitions from this
broker as from Kafka.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import lru_cache
from typing import Generic, TypeVar
from uuid import UUID

import xxhash

from kafkalog_broker.coordinator.coordinator_log import java_hash

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
_DEFAULT_CAPACITY = 16
_SPREAD = 1 << 16
"""Java mixes the upper half of a hash into the lower one, which changes nothing of what is smaller."""
_HALVES = struct.Struct(">qq")
_FIBONACCI = -7046029254386353131 & 0xFFFFFFFFFFFFFFFF  # BaseHashTable.findSlot


def uuid_hash(value: UUID) -> int:
    """Kafka's Uuid.hashCode."""
    high, low = _HALVES.unpack(value.bytes)
    mixed = (high ^ low) & 0xFFFFFFFFFFFFFFFF
    return int((mixed >> 32) ^ (mixed & 0xFFFFFFFF))


def uuid_order(value: UUID) -> tuple[int, int]:
    """A key that sorts as Kafka's Uuid.compareTo: two signed numbers."""
    return _HALVES.unpack(value.bytes)


def grown(count: int, capacity: int = _DEFAULT_CAPACITY) -> int:
    """Buckets of a HashMap that began with `capacity` and holds `count` entries: it doubles above three quarters."""
    while count > capacity * 0.75:
        capacity *= 2
    return capacity


def copied(count: int) -> int:
    """Buckets of a HashSet that was made of a collection of `count`."""
    return max(_DEFAULT_CAPACITY, 1 << int(count / 0.75).bit_length())


def in_map_order(items: Iterable[T], hash_of: Callable[[T], int], capacity: int) -> list[T]:
    """As a HashMap of so many buckets gives back what was put into it in this order."""
    listed = list(items)
    if len(listed) < 2:  # most members have one topic
        return listed

    def bucket(item: T) -> int:
        code = hash_of(item) & 0xFFFFFFFF
        return (code ^ code >> 16) & (capacity - 1)

    return sorted(listed, key=bucket)


def expected_of(count: int) -> int:
    """Capacity that Kafka's AssignorHelpers.newHashMap asks for, for a number of keys."""
    return int((count + 1) / 0.75 + 1)


class HashOrder(Generic[K]):
    """Keys in the order of a HashMap or HashSet. expected: as its constructor is given, 0 for none. hash_of: their
    hashCode, of which 32 bits count."""

    def __init__(self, hash_of: Callable[[K], int], keys: Iterable[K] = (), expected: int = 0) -> None:
        self._hash_of = hash_of
        self._keys: dict[K, None] = {}
        self._capacity = _DEFAULT_CAPACITY if not expected else 1 << max(0, (expected - 1).bit_length())
        for key in keys:
            self.add(key)

    def add(self, key: K) -> None:
        self._keys[key] = None
        self._capacity = grown(len(self._keys), self._capacity)

    def discard(self, key: K) -> None:
        self._keys.pop(key, None)

    def __contains__(self, key: K) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[K]:
        return iter(in_map_order(self._keys, self._hash_of, self._capacity))


class TopicMap:
    """The keys of a HashMap<Uuid, ...>, where the order in which they came shows: `put` goes to the end of a bucket,
    `compute_if_absent` to its beginning."""

    def __init__(self, expected: int) -> None:
        """expected: what the constructor is given."""
        self._capacity = 1 << (max(expected, 1) - 1).bit_length()
        self._keys: list[UUID] = []
        """Bucket by bucket, once sorted by bucket, which does not change their order within one."""

    def put(self, key: UUID) -> None:
        self._keys.append(key)
        self._grow()

    def compute_if_absent(self, key: UUID) -> None:
        if key not in self._keys:
            self._grow()  # Java looks before it adds, not after
            self._keys.insert(0, key)

    def remove(self, key: UUID) -> None:
        self._keys.remove(key)

    def _grow(self) -> None:
        while len(self._keys) > int(self._capacity * 0.75):
            self._capacity *= 2

    def in_order(self) -> list[UUID]:
        return in_map_order(self._keys, uuid_hash, self._capacity)


def set_of_partitions(partitions: Iterable[int], capacity: int | None = None) -> list[int]:
    """The order of a HashSet of so many buckets; without, that of `new HashSet<>(partitions)`."""
    listed = list(partitions)
    capacity = copied(len(listed)) if capacity is None else capacity
    highest = max(listed, default=0)
    if highest < capacity <= _SPREAD:
        return sorted(listed)  # each has a bucket of its own
    if highest < _SPREAD:
        return sorted(listed, key=(capacity - 1).__and__)
    return in_map_order(listed, lambda partition: partition, capacity)


def texts_in_timeline_order(texts: Iterable[str], peak: int) -> list[str]:
    """As a TimelineHashMap gives back what was put into it in this order. peak: the most that it ever held."""
    capacity = 2
    while peak * 0.75 > capacity:
        capacity *= 2
    shift = 65 - capacity.bit_length()

    def slot(text: str) -> int:
        return (java_hash(text) * _FIBONACCI & 0xFFFFFFFFFFFFFFFF) >> shift

    return sorted(texts, key=slot)


# The hash of the topics that a group subscribes to: when it changes, the group is assigned anew (KIP-1101).
#
# As Kafka computes it (coordinator.group.Utils), so that neither broker rebalances a group that the other has left:
# XXH3 of 64 bits over numbers in little-endian order and characters of 16 bits.

_MAGIC = b"\0"
_I32, _U64 = struct.Struct("<i"), struct.Struct("<Q")
_UNSIGNED_HALVES = struct.Struct(">QQ")
_NO_TOPIC = 0


@lru_cache(maxsize=1024)
def topic_hash(name: str, topic_id: UUID, partitions: int, rack: str | None) -> int:
    """rack: of the one replica, this broker."""
    high, low = _UNSIGNED_HALVES.unpack(topic_id.bytes)
    racks = b"" if rack is None else _I32.pack(len(rack)) + _text(rack)
    head = _MAGIC + _U64.pack(high) + _U64.pack(low) + _text(name) + _I32.pack(partitions)
    return xxhash.xxh3_64_intdigest(head + b"".join(_I32.pack(partition) + racks for partition in range(partitions)))


def group_hash(topics: Iterable[tuple[str, int]]) -> int:
    """Metadata hash of a group, from (name, topic_hash) of the topics that exist; 0 for none. Signed, as the record
    holds it."""
    data = b"".join(_U64.pack(hashed) for _, hashed in sorted(topics) if hashed != _NO_TOPIC)
    if not data:
        return 0
    value = xxhash.xxh3_64_intdigest(data)
    return value - 2**64 if value >= 2**63 else value


def _text(value: str) -> bytes:
    """Hashes of text end with the number of its characters."""
    units = value.encode("utf-16-le")
    return units + _I32.pack(len(units) // 2)
