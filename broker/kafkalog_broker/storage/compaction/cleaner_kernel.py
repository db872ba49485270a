"""Compaction kernels for v2 batches: choose the retained records, and rewrite batches without the others. Loads Numba.

They implement Kafka's `Cleaner.shouldRetainRecord` and `MemoryRecords.filterTo`; one call handles many batches.
"""

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
    """Columns of `units`, int64[n, len(CleanUnit)]: a v2 batch to clean."""

    BASE_OFFSET = 0
    LAST_OFFSET = 1
    COUNT = 2
    BASE_TIMESTAMP = 3
    MAX_TIMESTAMP = 4
    ATTRIBUTES = 5
    HEADER_AT = 6  # position of the batch in `source`
    SIZE = 7  # size of the batch in `source`
    RULE = 8
    KEEP_EMPTY = 9  # 1: keep the header even if no record is retained
    SET_HORIZON = 10  # 1: transaction marker with no data left, whose delete horizon must be set
    START = 11  # positions in `payload` of its uncompressed records
    END = 12


class RetentionRule(IntEnum):
    """Which records of a batch are retained."""

    BY_KEY = 0  # the latest record of each key
    ALL = 1  # control records
    NONE = 2


class CleanState(IntEnum):
    """Entries of `state`, int64[len(CleanState)]: inputs and progress of a call. Timestamps in ms."""

    LATEST = 0  # records above this offset are retained, because the map lacks their keys
    NOW = 1
    HORIZON = 2  # delete horizon for batches that retain a tombstone for the first time
    OUT_AT = 3  # in, out: number of bytes in `out`
    NEEDED = 4  # out, with NEED_ROOM: number of free bytes that the next batch needs in `out`
    NEXT_UNIT = 5  # in, out: first batch that is not done
    COPY_UNCHANGED = 6  # 1: copy unchanged batches to `out`


class CleanResult(IntEnum):
    """Columns of `results`, int64[n, len(CleanResult)]: the outcome of a batch."""

    OUTCOME = 0
    OUT_AT = 1  # position of the batch in `out`; undefined for DROPPED
    OUT_SIZE = 2
    LAST_OFFSET = 3
    MAX_TIMESTAMP = 4


class CleanOutcome(IntEnum):
    """What happened to a batch."""

    DROPPED = 0
    UNCHANGED = 1  # byte for byte
    REWRITTEN = 2  # with fewer records, or with a delete horizon
    EMPTIED = 3  # only the header is left
    UNREADABLE = 4  # left as it is, because its records are malformed


class CleanStatus(IntEnum):
    """Why a kernel returned."""

    DONE = 0
    NEED_ROOM = 1


GROWTH = 13  # bytes by which a record may grow: a timestamp delta of up to 10 bytes instead of 1, a length of up to 5
_KEPT_ATTRIBUTES = layout.ATTRIBUTE_LOG_APPEND_TIME | layout.ATTRIBUTE_TRANSACTIONAL | layout.ATTRIBUTE_CONTROL
"""Attribute bits copied to a rewritten batch; its codec and delete horizon are computed again."""


@inlined
def _choose_records(payload, start, end, unit, table, hash_seed, keep, state):  # type: ignore[no-untyped-def]
    """Flag in `keep` the records of a batch to retain. Returns (is well-formed, records kept, any tombstone kept)."""
    base_offset, count, rule = unit[CleanUnit.BASE_OFFSET], unit[CleanUnit.COUNT], unit[CleanUnit.RULE]
    latest = state[CleanState.LATEST]
    has_horizon = unit[CleanUnit.ATTRIBUTES] & layout.ATTRIBUTE_DELETE_HORIZON
    keeps_tombstones = has_horizon == 0 or state[CleanState.NOW] < unit[CleanUnit.BASE_TIMESTAMP]
    kept: Any = np.int64(0)
    tombstones = False
    if rule == RetentionRule.NONE:
        return True, kept, tombstones
    if count > keep.size or not well_formed(payload, start, end, count, unit[CleanUnit.LAST_OFFSET] - base_offset):
        return False, kept, tombstones
    at: Any = np.int64(start)
    for record in range(count):
        _, at, _, delta, key_at, key_size, value_size = record_fields(payload, at, end)
        offset = base_offset + delta
        stays: Any = True
        if rule == RetentionRule.BY_KEY and offset <= latest:
            if key_size < 0:
                stays = False
            else:
                stays = value_size >= 0 or keeps_tombstones
                if stays:
                    stays = offset >= latest_offset(table, hash_seed, payload, key_at, key_size)
        if stays:
            kept += 1
            if value_size < 0:
                tombstones = True
        keep[record] = np.uint8(stays)
    return True, kept, tombstones


@inlined
def _write_records(payload, start, end, unit, keep, horizon, out, at_out):  # type: ignore[no-untyped-def]
    """Write the records flagged in `keep` to out[at_out:], relative to a new base timestamp.

    That is `horizon` (ms), or the first record's timestamp if `horizon` is -1. Returns (position after the records,
    base timestamp, largest timestamp).
    """
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
    source, payload, units, table, hash_seed, keep, state, out, results, crc_table
):
    """Rewrite v2 batches into `out`, resuming at state[NEXT_UNIT].

    source: original batches. payload: their decompressed records. keep: uint8[], one flag for each record of the
    largest batch. A changed batch is written with uncompressed records and no codec in its attributes; the caller
    compresses it. A batch with malformed records stays unchanged (UNREADABLE), because its keys are unknown.

    Returns a CleanStatus; with NEED_ROOM the batches before state[NEXT_UNIT] are done.
    """
    new_horizon, copy_unchanged = state[CleanState.HORIZON], state[CleanState.COPY_UNCHANGED] != 0
    at_out: Any = np.int64(state[CleanState.OUT_AT])
    for i in range(state[CleanState.NEXT_UNIT], units.shape[0]):
        unit, row = units[i], results[i]
        start, end = unit[CleanUnit.START], unit[CleanUnit.END]
        has_horizon = unit[CleanUnit.ATTRIBUTES] & layout.ATTRIBUTE_DELETE_HORIZON
        readable, kept, tombstones = _choose_records(payload, start, end, unit, table, hash_seed, keep, state)
        sets_horizon = kept > 0 and (tombstones or unit[CleanUnit.SET_HORIZON] != 0) and has_horizon == 0
        row[CleanResult.OUT_AT], row[CleanResult.LAST_OFFSET] = at_out, unit[CleanUnit.LAST_OFFSET]
        row[CleanResult.MAX_TIMESTAMP] = unit[CleanUnit.MAX_TIMESTAMP]
        if not readable or (kept > 0 and kept == unit[CleanUnit.COUNT] and not sets_horizon):
            row[CleanResult.OUTCOME] = (
                np.int64(CleanOutcome.UNCHANGED) if readable else np.int64(CleanOutcome.UNREADABLE)
            )
            row[CleanResult.OUT_SIZE] = unit[CleanUnit.SIZE]
            if copy_unchanged:
                if unit[CleanUnit.SIZE] > out.size - at_out:
                    state[CleanState.OUT_AT], state[CleanState.NEXT_UNIT] = at_out, i
                    state[CleanState.NEEDED] = unit[CleanUnit.SIZE]
                    return np.int64(CleanStatus.NEED_ROOM)
                copy_bytes(out, at_out, source, unit[CleanUnit.HEADER_AT], unit[CleanUnit.SIZE])
                at_out += unit[CleanUnit.SIZE]
            continue
        if kept == 0 and unit[CleanUnit.KEEP_EMPTY] == 0:
            row[CleanResult.OUTCOME], row[CleanResult.OUT_SIZE] = CleanOutcome.DROPPED, 0
            continue
        room = layout.BATCH_OVERHEAD if kept == 0 else layout.BATCH_OVERHEAD + end - start + kept * GROWTH
        if room > out.size - at_out:
            state[CleanState.OUT_AT], state[CleanState.NEEDED], state[CleanState.NEXT_UNIT] = at_out, room, i
            return np.int64(CleanStatus.NEED_ROOM)
        first: Any = np.int64(at_out)
        copy_bytes(out, first, source, unit[CleanUnit.HEADER_AT], np.int64(layout.BATCH_OVERHEAD))
        at_out += layout.BATCH_OVERHEAD
        attributes = unit[CleanUnit.ATTRIBUTES] & _KEPT_ATTRIBUTES
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
    state[CleanState.OUT_AT], state[CleanState.NEXT_UNIT] = at_out, units.shape[0]
    return np.int64(CleanStatus.DONE)
