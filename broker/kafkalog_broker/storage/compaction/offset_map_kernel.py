"""Kernels of the offset map: a table from a keyed 128-bit hash of a key to its latest offset. Loads Numba."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numba import njit, types

from kafkalog_broker.storage.append.message_layouts import MessageColumn
from kafkalog_spark.kernels.primitives import helper, kernel_for
from kafkalog_spark.kernels.record_fields import record_fields, well_formed


class MapState(IntEnum):
    """Entries of the map's state, int64[len(MapState)]."""

    ENTRIES = 0  # number of keys in the table
    CAPACITY = 1  # largest number of keys
    LATEST = 2  # offset up to which every record's key is in the table


class MapSlot(IntEnum):
    """Columns of the table, uint64[slots, len(MapSlot)]: an entry."""

    LOW = 0  # the key's hash
    HIGH = 1
    NEXT = 2  # latest offset of the key + 1; 0 if the slot is empty


class HashSeed(IntEnum):
    """Entries of the secret seed of the hash, uint64[len(HashSeed)]."""

    K0 = 0
    K1 = 1


class MapUnit(IntEnum):
    """Columns of map_records' `units`, int64[n, len(MapUnit)]: a v2 batch."""

    BASE_OFFSET = 0
    LAST_OFFSET = 1
    COUNT = 2  # number of records; 0 for a batch whose records are ignored (control, aborted)


class MapStatus(IntEnum):
    """Why a kernel returned."""

    DONE = 0
    FULL = 1  # the key of the record after LATEST does not fit into the table


_SIP = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)  # SipHash's constants
_SIP0, _SIP1, _SIP2, _SIP3 = (np.uint64(value) for value in _SIP)


@njit(inline="always")
def _rotated(value, bits):  # type: ignore[no-untyped-def]
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@helper
def _sip_round(v0, v1, v2, v3):  # type: ignore[no-untyped-def]
    v0 += v1
    v1 = _rotated(v1, 13) ^ v0
    v0 = _rotated(v0, 32)
    v2 += v3
    v3 = _rotated(v3, 16) ^ v2
    v0 += v3
    v3 = _rotated(v3, 21) ^ v0
    v2 += v1
    v1 = _rotated(v1, 17) ^ v2
    v2 = _rotated(v2, 32)
    return v0, v1, v2, v3


@helper
def siphash128(data, at, size, k0, k1):  # type: ignore[no-untyped-def]
    """Return SipHash-2-4 with 128 bits of data[at:at + size], as two little-endian uint64."""
    v0, v1 = k0 ^ _SIP0, k1 ^ _SIP1 ^ np.uint64(0xEE)
    v2, v3 = k0 ^ _SIP2, k1 ^ _SIP3
    whole = at + (size & ~7)
    cur = at
    while cur < whole:
        word = np.uint64(0)
        for i in range(8):
            word |= np.uint64(data[cur + i]) << np.uint64(8 * i)
        v3 ^= word
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0 ^= word
        cur += 8
    word = np.uint64(size & 0xFF) << np.uint64(56)
    for i in range(size & 7):
        word |= np.uint64(data[whole + i]) << np.uint64(8 * i)
    v3 ^= word
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= np.uint64(0xEE)
    for _ in range(4):
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    first = v0 ^ v1 ^ v2 ^ v3
    v1 ^= np.uint64(0xDD)
    for _ in range(4):
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    return first, v0 ^ v1 ^ v2 ^ v3


@helper
def _slot_of(table, low, high):  # type: ignore[no-untyped-def]
    """Return the row of the entry with this hash, or the empty row for it. The table is never full."""
    slots = table.shape[0]
    slot = np.int64(low % np.uint64(slots))
    while True:
        if table[slot, MapSlot.NEXT] == 0:
            return slot
        if table[slot, MapSlot.LOW] == low and table[slot, MapSlot.HIGH] == high:
            return slot
        slot += 1
        if slot == slots:
            slot = np.int64(0)


@helper
def latest_offset(table, hash_seed, data, at, size):  # type: ignore[no-untyped-def]
    """Return the key's latest offset in the map; -1 if the key is not in it."""
    low, high = siphash128(data, at, size, hash_seed[HashSeed.K0], hash_seed[HashSeed.K1])
    return np.int64(table[_slot_of(table, low, high), MapSlot.NEXT]) - 1


@helper
def _put(table, hash_seed, state, data, at, size, offset):  # type: ignore[no-untyped-def]
    """Set the latest offset of a key. Returns False if the map is full, even if it contains the key, as in Kafka."""
    if state[MapState.ENTRIES] >= state[MapState.CAPACITY]:
        return False
    low, high = siphash128(data, at, size, hash_seed[HashSeed.K0], hash_seed[HashSeed.K1])
    slot = _slot_of(table, low, high)
    if table[slot, MapSlot.NEXT] == 0:
        table[slot, MapSlot.LOW] = low
        table[slot, MapSlot.HIGH] = high
        state[MapState.ENTRIES] += 1
    table[slot, MapSlot.NEXT] = np.uint64(offset + 1)
    state[MapState.LATEST] = offset
    return True


_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_TABLE = types.Array(types.uint64, 2, "C")
_SECRET = types.Array(types.uint64, 1, "C")
_INT64 = types.Array(types.int64, 1, "C")
_UNITS = types.Array(types.int64, 2, "C")
_I64 = types.int64


@kernel_for(_I64(_BYTES, _INT64, _INT64, _UNITS, _I64, _TABLE, _SECRET, _INT64))
def map_records(payload, starts, ends, units, from_offset, table, hash_seed, state):  # type: ignore[no-untyped-def]
    """Add the keys of v2 batches' records at or above `from_offset` to the map. Returns DONE or FULL.

    payload[starts[i]:ends[i]]: uncompressed records of batch i. units: int64[n, len(MapUnit)]. A batch with malformed
    records adds no key: it cannot be read, so it must not supersede readable records.
    """
    for unit in range(starts.size):
        base_offset, last_offset, count = (
            units[unit, MapUnit.BASE_OFFSET],
            units[unit, MapUnit.LAST_OFFSET],
            units[unit, MapUnit.COUNT],
        )
        start, end = starts[unit], ends[unit]
        if count > 0 and well_formed(payload, start, end, count, last_offset - base_offset):
            at = start
            for _ in range(count):
                _, at, _, delta, key_at, key_size, _ = record_fields(payload, at, end)
                offset = base_offset + delta
                if (
                    key_size >= 0
                    and offset >= from_offset
                    and not _put(table, hash_seed, state, payload, key_at, key_size, offset)
                ):
                    return np.int64(MapStatus.FULL)
        if last_offset >= from_offset:
            state[MapState.LATEST] = last_offset
    return np.int64(MapStatus.DONE)


@kernel_for(_I64(_BYTES, _UNITS, _TABLE, _SECRET, _INT64))
def map_messages(payload, messages, table, hash_seed, state):  # type: ignore[no-untyped-def]
    """Add the keys of messages of format v0 or v1 to the map (see `find_messages`); the rest is as in `map_records`."""
    for row in range(messages.shape[0]):
        key_at, key_size = messages[row, MessageColumn.KEY_AT], messages[row, MessageColumn.KEY_SIZE]
        offset = messages[row, MessageColumn.OFFSET]
        if key_size >= 0 and not _put(table, hash_seed, state, payload, key_at, key_size, offset):
            return np.int64(MapStatus.FULL)
        state[MapState.LATEST] = offset
    return np.int64(MapStatus.DONE)
