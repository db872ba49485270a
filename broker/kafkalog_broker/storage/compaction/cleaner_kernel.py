"""Which records of a batch survive compaction, and the batch without the others: compiled, one call for many batches.

The rules are those of Cleaner.shouldRetainRecord and MemoryRecords.filterTo. Importing this loads Numba.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
from numba import njit, types

from kafkalog_broker.storage.compaction.offset_map_kernel import latest_offset
from kafkalog_spark.log.kernels.encode import varint_size, write_varint
from kafkalog_spark.log.kernels.primitives import (
    CRC32C_TABLE,
    JIT,
    copy_bytes,
    crc_of,
    varint,
    varint32,
    write_i32,
    write_i64,
)
from kafkalog_spark.log.kernels.record_fields import record_fields, well_formed


class U(IntEnum):
    """Columns of `units`, int64[n, len(U)]: what is to be done with a v2 batch."""

    BASE_OFFSET = 0
    LAST_OFFSET = 1
    COUNT = 2
    BASE_TIMESTAMP = 3
    MAX_TIMESTAMP = 4
    ATTRIBUTES = 5
    HEADER_AT = 6  # byte of `source` where the batch begins
    SIZE = 7  # bytes of the batch in `source`
    RULE = 8
    KEEP_EMPTY = 9  # 1: its header stays when no record does
    ENDED_EMPTY = 10  # 1: a marker whose transaction has no batch left; its horizon begins to count


class Rule(IntEnum):
    """Which records of a batch stay."""

    BY_KEY = 0  # the latest of each key
    ALL = 1  # control records
    NONE = 2


class A(IntEnum):
    """Entries of `limits`, int64[len(A)], what all batches have in common. Timestamps in ms."""

    LATEST = 0  # records above this offset stay: the map does not know their keys
    NOW = 1
    HORIZON = 2  # a batch that keeps a tombstone for the first time loses it from then on
    OUT_AT = 3  # in, out: how far `out` is filled
    NEEDED = 4  # out, with NEED_ROOM: bytes that `out` must have behind OUT_AT
    UNIT = 5  # in, out: batch to go on with
    COPY_WHOLE = 6  # 1: a batch that stays as it is, is copied to `out`


class R(IntEnum):
    """Columns of `results`, int64[n, len(R)], what became of a batch."""

    OUTCOME = 0
    OUT_AT = 1  # byte of `out` where the batch begins; meaningless for DROPPED
    OUT_SIZE = 2
    LAST_OFFSET = 3
    MAX_TIMESTAMP = 4
    KEPT = 5  # records


class Outcome(IntEnum):
    """What became of a batch."""

    DROPPED = 0
    WHOLE = 1  # as it was, byte for byte
    REWRITTEN = 2  # with fewer records, or with a delete horizon
    EMPTIED = 3  # only its header
    UNREADABLE = 4  # as it was, because its records are malformed


class CleanStatus(IntEnum):
    """Why a kernel came back."""

    DONE = 0
    NEED_ROOM = 1


GROWTH = 13
"""Bytes by which a record may grow: a timestamp delta of up to 10 bytes instead of 1, a length of up to 5."""

_CODEC, _LOG_APPEND_TIME, _HORIZON_SET = 0x07, 0x08, 0x40
_KEPT_WHEN_EMPTY = 0x38  # timestamp type, transactional, control
_KEPT_WHEN_REWRITTEN = 0x3F
_HEADER = 61


@njit
def _seal(out, start, end, crc_table):  # type: ignore[no-untyped-def]
    """Length and CRC of the batch in out[start:end]."""
    write_i32(out, start + 8, end - start - 12)
    write_i32(out, start + 17, crc_of(out, start + 21, end, crc_table))


_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_OUT = types.Array(types.uint8, 1, "C")
_INT64 = types.Array(types.int64, 1, "C")
_INT64_2 = types.Array(types.int64, 2, "C")
_UINT64 = types.Array(types.uint64, 1, "C")
_UINT64_2 = types.Array(types.uint64, 2, "C")
_CRC = types.Array(types.uint32, 2, "C")
_I64 = types.int64
_CLEAN = _I64(_BYTES, _BYTES, _INT64, _INT64, _INT64_2, _UINT64_2, _UINT64, _OUT, _INT64, _OUT, _INT64_2, _CRC)


@njit(_CLEAN, **JIT)
def clean_batches(  # type: ignore[no-untyped-def]
    source, payload, starts, ends, units, table, secret, keep, limits, out, results, crc_table
):
    """Write what stays of some v2 batches to `out`, from unit limits[UNIT] on.

    source: where the batches lie as they are; batch i's uncompressed records lie in payload[starts[i]:ends[i]].
    keep: uint8[], room for one flag for each record of the largest batch. A batch that changes is written with its
    records uncompressed and the codec of its attributes cleared: compressing it is the caller's matter. A batch with
    malformed records stays as it is (UNREADABLE): the keys that it may hold are not known.
    Returns a CleanStatus; with NEED_ROOM the batches before limits[UNIT] are done.
    """
    latest, now, new_horizon, copy_whole = limits[0], limits[1], limits[2], limits[6] != 0
    at_out: Any = np.int64(limits[3])
    for unit in range(limits[5], starts.size):
        base_offset, last_offset, count = units[unit, 0], units[unit, 1], units[unit, 2]
        base_timestamp, max_timestamp, attributes = units[unit, 3], units[unit, 4], units[unit, 5]
        header_at, size_of_batch, rule = units[unit, 6], units[unit, 7], units[unit, 8]
        start, end = starts[unit], ends[unit]
        log_append = attributes & _LOG_APPEND_TIME
        has_horizon = attributes & _HORIZON_SET
        keeps_tombstones = has_horizon == 0 or now < base_timestamp
        kept: Any = np.int64(0)
        tombstones = False
        at: Any = np.int64(start)
        readable: Any = rule == 2 or count <= keep.size
        readable = readable and (rule == 2 or well_formed(payload, start, end, count, last_offset - base_offset))
        if rule != 2 and readable:
            for record in range(count):
                _, at, _, delta, key_at, key_size, value_size = record_fields(payload, at, end)
                offset = base_offset + delta
                stays: Any = True
                if rule == 0 and offset <= latest:
                    if key_size < 0:
                        stays = False
                    else:
                        stays = value_size >= 0 or keeps_tombstones
                        if stays:
                            stays = offset >= latest_offset(table, secret, payload, key_at, key_size)
                if stays:
                    kept += 1
                    if value_size < 0:
                        tombstones = True
                keep[record] = np.uint8(stays)
        sets_horizon = kept > 0 and (tombstones or units[unit, 10] != 0) and has_horizon == 0
        row = results[unit]
        row[1], row[3], row[4], row[5] = at_out, last_offset, max_timestamp, kept
        if not readable or (kept > 0 and kept == count and not sets_horizon):
            row[0], row[2] = (1 if readable else 4), size_of_batch
            if copy_whole:
                if size_of_batch > out.size - at_out:
                    limits[3], limits[4], limits[5] = at_out, size_of_batch, unit
                    return np.int64(1)
                copy_bytes(out, at_out, source, header_at, size_of_batch)
                at_out += size_of_batch
            continue
        if kept == 0 and units[unit, 9] == 0:
            row[0], row[2] = 0, 0
            continue
        room = _HEADER if kept == 0 else _HEADER + end - start + kept * GROWTH
        if room > out.size - at_out:
            limits[3], limits[4], limits[5] = at_out, room, unit
            return np.int64(1)
        first: Any = np.int64(at_out)
        copy_bytes(out, first, source, header_at, np.int64(_HEADER))
        at_out += _HEADER
        if kept == 0:
            row[0] = 3
            attributes = attributes & _KEPT_WHEN_EMPTY
            base_timestamp = np.int64(-1)
        else:
            row[0] = 2
            horizon = np.int64(-1)
            if sets_horizon:
                horizon = new_horizon
            elif has_horizon != 0:
                horizon = base_timestamp
            old_base = base_timestamp
            base_known = horizon >= 0
            if base_known:
                base_timestamp = horizon
            largest = np.int64(-1)
            at = np.int64(start)
            for record in range(count):
                size, body = varint32(payload, at, end)
                at = body + size
                if keep[record] == 0:
                    continue
                timestamp_delta, cur = varint(payload, body + 1, at)
                delta, cur = varint32(payload, cur, at)
                timestamp = max_timestamp if log_append != 0 else old_base + timestamp_delta
                if not base_known:
                    base_timestamp = timestamp
                    base_known = True  # type: ignore[assignment]
                largest = max(largest, timestamp)
                timestamp_delta = timestamp - base_timestamp
                rest = at - cur
                at_out = write_varint(out, at_out, 1 + varint_size(timestamp_delta) + varint_size(delta) + rest)
                out[at_out] = np.uint8(0)  # attributes: none are in use
                at_out = write_varint(out, at_out + 1, timestamp_delta)
                at_out = write_varint(out, at_out, delta)
                copy_bytes(out, at_out, payload, cur, rest)
                at_out += rest
            if log_append == 0:
                max_timestamp = largest
                row[4] = largest
            attributes = attributes & (_KEPT_WHEN_REWRITTEN & ~_CODEC)
            if horizon >= 0:
                attributes |= _HORIZON_SET
        out[first + 21] = np.uint8(0)
        out[first + 22] = np.uint8(attributes)
        write_i64(out, first + 27, base_timestamp)
        write_i64(out, first + 35, max_timestamp)
        write_i32(out, first + 57, kept)
        _seal(out, first, at_out, crc_table)
        row[2] = at_out - first
    limits[3], limits[5] = at_out, starts.size
    return np.int64(0)


CRC_TABLE = CRC32C_TABLE
