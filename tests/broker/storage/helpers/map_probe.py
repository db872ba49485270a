"""Lookups of single keys in the cleaner's offset map."""

from __future__ import annotations

import numpy as np
from numba import njit

from kafkalog_broker.storage.compaction.offset_map import OffsetMap
from kafkalog_broker.storage.compaction.offset_map_kernel import HashSeed, latest_offset, siphash128


@njit
def _hash_of(key, secret):  # type: ignore[no-untyped-def]
    return siphash128(key, np.int64(0), np.int64(key.size), secret[HashSeed.K0], secret[HashSeed.K1])


@njit
def _latest_of(key, table, secret):  # type: ignore[no-untyped-def]
    return latest_offset(table, secret, key, np.int64(0), np.int64(key.size))


def latest_of(keys: OffsetMap, key: bytes) -> int:
    """The latest offset of a key, -1 when it is not in the map."""
    return int(_latest_of(np.frombuffer(key, np.uint8), keys.table, keys.hash_seed))


def hash_of(keys: OffsetMap, key: bytes) -> bytes:
    """The 16 bytes that stand for a key."""
    return b"".join(int(half).to_bytes(8, "little") for half in _hash_of(np.frombuffer(key, np.uint8), keys.hash_seed))
