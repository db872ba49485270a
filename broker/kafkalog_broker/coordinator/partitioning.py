"""The partition of an internal topic that a key, such as a group ID, belongs to."""

from __future__ import annotations

import struct
from functools import lru_cache

_UTF16_UNIT = struct.Struct(">H")
_CACHED_KEYS = 1 << 12
_MAX_CACHED_CHARACTERS = 128  # longer keys are not cached, which bounds the memory of the cache


def partition_for(key: str, partition_count: int) -> int:
    """Return `Utils.abs(key.hashCode()) % partition_count`, as Kafka's coordinators do."""
    value = _cached_hash(key) if len(key) <= _MAX_CACHED_CHARACTERS else _java_hash(key)
    return (0 if value == -(2**31) else abs(value)) % partition_count  # Java cannot negate its smallest integer


def _java_hash(text: str) -> int:
    """Return `String.hashCode`, which goes over UTF-16 code units, not characters."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for (unit,) in _UTF16_UNIT.iter_unpack(units):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


_cached_hash = lru_cache(_CACHED_KEYS)(_java_hash)
