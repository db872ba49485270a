"""Which messages of formats v0 and v1 survive compaction, and a message set without the others: compiled.

Importing this loads Numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from kafkalog_broker.storage.compaction.offset_map_kernel import latest_offset
from kafkalog_spark.log.format import layout
from kafkalog_spark.log.kernels.primitives import JIT, copy_bytes, read_i32, read_i64, write_i64
from kafkalog_spark.log.kernels.rows import Status

_KEY_AT_V0, _KEY_AT_V1 = layout.LEGACY_KEY_AT

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_OUT = types.Array(types.uint8, 1, "C")
_UINT64 = types.Array(types.uint64, 1, "C")
_UINT64_2 = types.Array(types.uint64, 2, "C")
_I64 = types.int64


@njit(types.UniTuple(_I64, 2)(_BYTES, _I64, _I64, _I64, _I64, _UINT64_2, _UINT64, _OUT, _I64, _I64), **JIT)
def choose_messages(payload, start, end, magic, add, table, secret, keep, latest, keeps_tombstones):  # type: ignore[no-untyped-def]
    """Flag in `keep` which of the messages v0 or v1 in payload[start:end] stay, `add` added to each offset.

    Those above offset `latest` do; keeps_tombstones: 1 when a tombstone that is its key's latest does.

    Returns (messages, how many stay), (position, -Status) for a fault. `keep` has room for all.
    """
    key_field = np.int64(_KEY_AT_V1) if magic == 1 else np.int64(_KEY_AT_V0)
    at: Any = np.int64(start)
    seen: Any = np.int64(0)
    kept: Any = np.int64(0)
    while at < end:
        if end - at < key_field + 8:
            return at, -np.int64(Status.RECORD_OVERRUNS)
        size = read_i32(payload, at + layout.LENGTH_AT) + layout.LOG_OVERHEAD
        if size < key_field + 8 or size > end - at or seen >= keep.size:
            return at, -np.int64(Status.RECORD_OVERRUNS)
        key_size = read_i32(payload, at + key_field)
        if key_size > size - key_field - 8:
            return at, -np.int64(Status.FIELD_OVERRUNS)
        key_at = at + key_field + 4
        value_size = read_i32(payload, key_at + max(key_size, np.int64(0)))
        stays: Any = True
        if read_i64(payload, at) + add <= latest:
            stays = key_size >= 0 and (value_size >= 0 or keeps_tombstones != 0)
            if stays:
                stays = read_i64(payload, at) + add >= latest_offset(table, secret, payload, key_at, key_size)
        keep[seen] = np.uint8(stays)
        kept += stays
        seen += 1
        at += size
    return seen, kept


@njit(types.UniTuple(_I64, 4)(_BYTES, _I64, _I64, _I64, _I64, _I64, _OUT, _OUT, _I64), **JIT)
def copy_messages(payload, start, end, magic, add, relative, keep, out, at_out):  # type: ignore[no-untyped-def]
    """Copy the messages of payload[start:end] that `keep` flags to out[at_out:], which has room.

    relative: 1 to give them offsets that count from the first one kept, as inside a wrapper v1. Offsets lie outside a
    message's CRC. Returns (position after them, first offset, last offset, largest timestamp or -1).
    """
    at: Any = np.int64(start)
    seen: Any = np.int64(0)
    first: Any = np.int64(-1)
    last: Any = np.int64(-1)
    largest: Any = np.int64(-1)
    while at < end:
        size = read_i32(payload, at + layout.LENGTH_AT) + layout.LOG_OVERHEAD
        if keep[seen] != 0:
            last = read_i64(payload, at) + add
            if first < 0:
                first = last
            copy_bytes(out, at_out, payload, at, size)
            write_i64(out, at_out, last - first if relative != 0 else last)
            if magic == 1:
                largest = max(largest, read_i64(payload, at + layout.LEGACY_TIMESTAMP_AT))
            at_out += size
        seen += 1
        at += size
    return at_out, first, last, largest
