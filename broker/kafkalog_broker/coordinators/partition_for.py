"""Which partition of an internal topic holds a group or a transactional id."""

from __future__ import annotations

import struct
from functools import lru_cache

_UNIT = struct.Struct(">H")
_LONGEST_REMEMBERED = 128
"""Characters. Names are looked up again and again; long ones would make what is remembered large."""


def partition_for(key: str, partition_count: int) -> int:
    """Utils.abs(key.hashCode()) % partitions."""
    value = java_hash(key)
    return (0 if value == -(2**31) else abs(value)) % partition_count  # Java cannot negate its smallest integer


def java_hash(text: str) -> int:
    """String.hashCode: over UTF-16 code units, not characters."""
    return _remembered(text) if len(text) <= _LONGEST_REMEMBERED else _computed(text)


def _computed(text: str) -> int:
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for (unit,) in _UNIT.iter_unpack(units):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


_remembered = lru_cache(1 << 12)(_computed)  # a MB, however many names come and go
