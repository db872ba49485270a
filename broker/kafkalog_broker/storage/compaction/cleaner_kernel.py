"""Kernels of compaction (Cleaner.shouldRetainRecord, MemoryRecords.filterTo): records of batches that survive, and
batches without the others; one call for many batches. Loads Numba."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
from numba import types

from kafkalog_broker.storage.compaction.offset_map_kernel import latest_offset
from kafkalog_spark.format import layout
from kafkalog_spark.kernels.encode import varint_size, write_varint
from kafkalog_spark.kernels.primitives import (
    copy_bytes,
    crc_of,
    helper,
    inlined,
    kernel_for,
    varint,
    varint32,
    write_i32,
    write_i64,
)
from kafkalog_spark.kernels.record_fields import record_fields, well_formed


class CleanUnit(IntEnum):
    """Columns of `units`, int64[n, len(CleanUnit)]: the work on a v2 batch."""

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
    START = 11  # byte of `payload` where its uncompressed records begin, and where they end
    END = 12


class Rule(IntEnum):
    BY_KEY = 0  # the latest of each key
    ALL = 1  # control records
    NONE = 2


class CleanLimit(IntEnum):
    """Entries of `limits`, int64[len(CleanLimit)]: common to all batches. Timestamps in ms."""

    LATEST = 0  # records above this offset stay: the map does not know their keys
    NOW = 1
    HORIZON = 2  # a batch that keeps a tombstone for the first time loses it from then on
    OUT_AT = 3  # in, out: how far `out` is filled
    NEEDED = 4  # out, with NEED_ROOM: bytes that `out` must have after OUT_AT
    UNIT = 5  # in, out: batch to go on with
    COPY_WHOLE = 6  # 1: a batch that stays as it is, is copied to `out`


class CleanResult(IntEnum):
    """Columns of `results`, int64[n, len(CleanResult)]: the outcome of a batch."""

    OUTCOME = 0
    OUT_AT = 1  # byte of `out` where the batch begins; meaningless for DROPPED
    OUT_SIZE = 2
    LAST_OFFSET = 3
    MAX_TIMESTAMP = 4


class CleanOutcome(IntEnum):
    DROPPED = 0
    WHOLE = 1  # as it was, byte for byte
    REWRITTEN = 2  # with fewer records, or with a delete horizon
    EMPTIED = 3  # only its header
    UNREADABLE = 4  # as it was, because its records are malformed


class CleanStatus(IntEnum):
    """Why a kernel came back."""

    DONE = 0
    NEED_ROOM = 1


GROWTH = 13  # bytes by which a record may grow: a timestamp delta of up to 10 bytes instead of 1, a length of up to 5
_KEPT = layout.ATTRIBUTE_LOG_APPEND_TIME | layout.ATTRIBUTE_TRANSACTIONAL | layout.ATTRIBUTE_CONTROL
"""Attributes that a batch keeps when it changes: it is not compressed then, and its delete horizon is decided again."""


@inlined
def _choose_records(payload, start, end, unit, table, secret, keep, limits):  # type: ignore[no-untyped-def]
    """Flag in `keep` the records of a batch that stay; returns (well-formed, how many stay, a tombstone does)."""
    base_offset, count, rule = unit[CleanUnit.BASE_OFFSET], unit[CleanUnit.COUNT], unit[CleanUnit.RULE]
    latest = limits[CleanLimit.LATEST]
    has_horizon = unit[CleanUnit.ATTRIBUTES] & layout.ATTRIBUTE_DELETE_HORIZON
    keeps_tombstones = has_horizon == 0 or limits[CleanLimit.NOW] < unit[CleanUnit.BASE_TIMESTAMP]
    kept: Any = np.int64(0)
    tombstones = False
    if rule == Rule.NONE:
        return True, kept, tombstones
    if count > keep.size or not well_formed(payload, start, end, count, unit[CleanUnit.LAST_OFFSET] - base_offset):
        return False, kept, tombstones
    at: Any = np.int64(start)
    for record in range(count):
        _, at, _, delta, key_at, key_size, value_size = record_fields(payload, at, end)
        offset = base_offset + delta
        stays: Any = True
        if rule == Rule.BY_KEY and offset <= latest:
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
    return True, kept, tombstones


@inlined
def _write_records(payload, start, end, unit, keep, horizon, out, at_out):  # type: ignore[no-untyped-def]
    """Write the records that `keep` flags to out[at_out:], relative to a new base timestamp: `horizon` (ms), or where
    it is -1 the first record's. Returns (position after them, that base timestamp, largest timestamp)."""
    log_append = unit[CleanUnit.ATTRIBUTES] & layout.ATTRIBUTE_LOG_APPEND_TIME
    base_known = horizon >= 0
    base_timestamp = horizon if base_known else unit[CleanUnit.BASE_TIMESTAMP]
    largest = np.int64(layout.NO_TIMESTAMP)
    at: Any = np.int64(start)
    for record in range(unit[CleanUnit.COUNT]):
        size, body = varint32(payload, at, end)
        at = body + size
        if keep[record] == 0:
            continue
        timestamp_delta, cur = varint(payload, body + 1, at)
        delta, cur = varint32(payload, cur, at)
        timestamp = (
            unit[CleanUnit.MAX_TIMESTAMP] if log_append != 0 else unit[CleanUnit.BASE_TIMESTAMP] + timestamp_delta
        )
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
    return at_out, base_timestamp, largest


@helper
def _put_header(out, start, end, attributes, base_timestamp, max_timestamp, count, crc_table):  # type: ignore[no-untyped-def]
    """Write the changed header fields of the batch in out[start:end], then its length and CRC."""
    out[start + layout.ATTRIBUTES_AT] = np.uint8(0)
    out[start + layout.ATTRIBUTES_AT + 1] = np.uint8(attributes)
    write_i64(out, start + layout.BASE_TIMESTAMP_AT, base_timestamp)
    write_i64(out, start + layout.MAX_TIMESTAMP_AT, max_timestamp)
    write_i32(out, start + layout.RECORD_COUNT_AT, count)
    write_i32(out, start + layout.LENGTH_AT, end - start - layout.LOG_OVERHEAD)
    write_i32(out, start + layout.CRC_AT, crc_of(out, start + layout.ATTRIBUTES_AT, end, crc_table))


_KEY_AT_V0, _KEY_AT_V1 = layout.LEGACY_KEY_AT
_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_OUT = types.Array(types.uint8, 1, "C")
_INT64 = types.Array(types.int64, 1, "C")
_INT64_2 = types.Array(types.int64, 2, "C")
_UINT64 = types.Array(types.uint64, 1, "C")
_UINT64_2 = types.Array(types.uint64, 2, "C")
_CRC = types.Array(types.uint32, 2, "C")
_I64 = types.int64
_CLEAN = _I64(_BYTES, _BYTES, _INT64_2, _UINT64_2, _UINT64, _OUT, _INT64, _OUT, _INT64_2, _CRC)


@kernel_for(_CLEAN)
def clean_batches(  # type: ignore[no-untyped-def]
    source, payload, units, table, secret, keep, limits, out, results, crc_table
):
    """Write what stays of some v2 batches to `out`, from unit limits[UNIT] on.

    source: where the batches lie as they are. payload: where their uncompressed records lie. keep: uint8[], a flag for
    each record of the largest batch. A batch that changes is written with its records uncompressed and the codec of its
    attributes cleared: compressing it is the caller's matter. A batch with malformed records stays as it is
    (UNREADABLE): the keys that it may hold are not known.
    Returns a CleanStatus; with NEED_ROOM the batches before limits[UNIT] are done.
    """
    new_horizon, copy_whole = limits[CleanLimit.HORIZON], limits[CleanLimit.COPY_WHOLE] != 0
    at_out: Any = np.int64(limits[CleanLimit.OUT_AT])
    for i in range(limits[CleanLimit.UNIT], units.shape[0]):
        unit, row = units[i], results[i]
        start, end = unit[CleanUnit.START], unit[CleanUnit.END]
        has_horizon = unit[CleanUnit.ATTRIBUTES] & layout.ATTRIBUTE_DELETE_HORIZON
        readable, kept, tombstones = _choose_records(payload, start, end, unit, table, secret, keep, limits)
        sets_horizon = kept > 0 and (tombstones or unit[CleanUnit.ENDED_EMPTY] != 0) and has_horizon == 0
        row[CleanResult.OUT_AT], row[CleanResult.LAST_OFFSET] = at_out, unit[CleanUnit.LAST_OFFSET]
        row[CleanResult.MAX_TIMESTAMP] = unit[CleanUnit.MAX_TIMESTAMP]
        if not readable or (kept > 0 and kept == unit[CleanUnit.COUNT] and not sets_horizon):
            row[CleanResult.OUTCOME] = np.int64(CleanOutcome.WHOLE) if readable else np.int64(CleanOutcome.UNREADABLE)
            row[CleanResult.OUT_SIZE] = unit[CleanUnit.SIZE]
            if copy_whole:
                if unit[CleanUnit.SIZE] > out.size - at_out:
                    limits[CleanLimit.OUT_AT], limits[CleanLimit.UNIT] = at_out, i
                    limits[CleanLimit.NEEDED] = unit[CleanUnit.SIZE]
                    return np.int64(CleanStatus.NEED_ROOM)
                copy_bytes(out, at_out, source, unit[CleanUnit.HEADER_AT], unit[CleanUnit.SIZE])
                at_out += unit[CleanUnit.SIZE]
            continue
        if kept == 0 and unit[CleanUnit.KEEP_EMPTY] == 0:
            row[CleanResult.OUTCOME], row[CleanResult.OUT_SIZE] = CleanOutcome.DROPPED, 0
            continue
        room = layout.BATCH_OVERHEAD if kept == 0 else layout.BATCH_OVERHEAD + end - start + kept * GROWTH
        if room > out.size - at_out:
            limits[CleanLimit.OUT_AT], limits[CleanLimit.NEEDED], limits[CleanLimit.UNIT] = at_out, room, i
            return np.int64(CleanStatus.NEED_ROOM)
        first: Any = np.int64(at_out)
        copy_bytes(out, first, source, unit[CleanUnit.HEADER_AT], np.int64(layout.BATCH_OVERHEAD))
        at_out += layout.BATCH_OVERHEAD
        attributes = unit[CleanUnit.ATTRIBUTES] & _KEPT
        if kept == 0:
            row[CleanResult.OUTCOME] = CleanOutcome.EMPTIED
            base_timestamp = np.int64(layout.NO_TIMESTAMP)
        else:
            row[CleanResult.OUTCOME] = CleanOutcome.REWRITTEN
            horizon = np.int64(-1)
            if sets_horizon:
                horizon = new_horizon
            elif has_horizon != 0:
                horizon = unit[CleanUnit.BASE_TIMESTAMP]
            at_out, base_timestamp, largest = _write_records(payload, start, end, unit, keep, horizon, out, at_out)
            if attributes & layout.ATTRIBUTE_LOG_APPEND_TIME == 0:
                row[CleanResult.MAX_TIMESTAMP] = largest
            if horizon >= 0:
                attributes |= layout.ATTRIBUTE_DELETE_HORIZON
        _put_header(out, first, at_out, attributes, base_timestamp, row[CleanResult.MAX_TIMESTAMP], kept, crc_table)
        row[CleanResult.OUT_SIZE] = at_out - first
    limits[CleanLimit.OUT_AT], limits[CleanLimit.UNIT] = at_out, units.shape[0]
    return np.int64(CleanStatus.DONE)
