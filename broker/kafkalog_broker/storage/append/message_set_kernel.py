"""Message sets v0 and v1 made the records of a v2 batch, compiled. Imported by `message_sets` when the first one comes:
importing this loads Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from kafkalog_broker.storage.append.kernel_fields import SetFact, SetFault, SetRule
from kafkalog_spark.format import layout
from kafkalog_spark.kernels.encode import varint_size, write_varint
from kafkalog_spark.kernels.primitives import copy_bytes, crc_of, kernel_for, read_i32, read_i64, read_u32

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_OUT = types.Array(types.uint8, 1, "C")
_NUMBERS = types.Array(types.int64, 1, "C")
_TABLE = types.Array(types.uint32, 2, "C")
_I64 = types.int64

_SMALLEST_V0, _SMALLEST_V1 = layout.LEGACY_MIN_SIZE
_KEY_AT_V0, _KEY_AT_V1 = layout.LEGACY_KEY_AT
_NEWEST_MAGIC = 2


@njit
def _checked(payload, at, end, rules, crc32_table):  # type: ignore[no-untyped-def]
    """The message at payload[at:end] -> (SetFault, its size); no fault and no size where it is cut short."""
    nothing = np.int64(0)
    if end - at < layout.LOG_OVERHEAD:
        return np.int64(SetFault.NONE), nothing
    size = read_i32(payload, at + layout.LENGTH_AT) + layout.LOG_OVERHEAD
    if size < layout.LOG_OVERHEAD:
        return np.int64(SetFault.NEGATIVE_SIZE), nothing
    if size < _SMALLEST_V0:
        return np.int64(SetFault.SMALL_SIZE), nothing
    if end - at <= layout.MAGIC_AT:
        return np.int64(SetFault.NONE), nothing
    magic = np.int64(payload[at + layout.MAGIC_AT])
    if magic > _NEWEST_MAGIC:
        return np.int64(SetFault.UNKNOWN_MAGIC), nothing
    if size > end - at:
        return np.int64(SetFault.NONE), nothing
    if size > rules[SetRule.MOST_BYTES]:
        return np.int64(SetFault.TOO_LARGE), nothing
    if magic != rules[SetRule.MAGIC]:
        return np.int64(SetFault.OTHER_MAGIC), nothing
    crc = read_u32(payload, at + layout.LEGACY_CRC_AT)
    if crc_of(payload, at + layout.MAGIC_AT, at + size, crc32_table) != crc:
        return np.int64(SetFault.CRC), nothing
    attributes = payload[at + layout.LEGACY_ATTRIBUTES_AT]
    if attributes & layout.ATTRIBUTE_CODEC:
        return np.int64(SetFault.COMPRESSED), nothing
    if magic == 1 and size < _SMALLEST_V1:
        return np.int64(SetFault.FIELDS), nothing
    if magic == 1 and rules[SetRule.IS_INNER] == 0 and attributes & layout.ATTRIBUTE_LOG_APPEND_TIME:
        return np.int64(SetFault.APPEND_TIME_SET), nothing
    return np.int64(SetFault.NONE), size


@njit
def _write_record(payload, key_at, key_size, value_at, value_size, delta, number, out, filled):  # type: ignore[no-untyped-def]
    """Write one record to out[filled:]; returns the position after it."""
    key_size, value_size = max(key_size, np.int64(-1)), max(value_size, np.int64(-1))
    body = np.int64(2) + varint_size(delta) + varint_size(number) + varint_size(key_size)
    body += max(key_size, np.int64(0)) + varint_size(value_size) + max(value_size, np.int64(0))
    filled = write_varint(out, filled, body)
    out[filled] = 0  # attributes
    filled = write_varint(out, filled + 1, delta)
    filled = write_varint(out, filled, number)
    filled = write_varint(out, filled, key_size)
    if key_size > 0:
        copy_bytes(out, filled, payload, key_at, key_size)
        filled += key_size
    filled = write_varint(out, filled, value_size)
    if value_size > 0:
        copy_bytes(out, filled, payload, value_at, value_size)
        filled += value_size
    out[filled] = 0  # headers
    return filled + 1


@kernel_for(_I64(_BYTES, _I64, _I64, _NUMBERS, _TABLE, _NUMBERS, _OUT))
def records_of_messages(payload, start, end, rules, crc32_table, facts, out):  # type: ignore[no-untyped-def]
    """Write the messages in payload[start:end] to `out` as records with offset deltas 0, 1, 2 ...; returns a SetFault.

    `out` has room for as many bytes: a record is never longer than its message. A message that is cut short at the end
    is left off. rules: see SetRule; facts: SetFact. What a message has after its value is left off, as Java does.
    """
    key_field = np.int64(_KEY_AT_V1) if rules[SetRule.MAGIC] == 1 else np.int64(_KEY_AT_V0)
    at: Any = np.int64(start)
    count: Any = np.int64(0)
    filled: Any = np.int64(0)
    base: Any = np.int64(layout.NO_TIMESTAMP)
    largest: Any = np.int64(layout.NO_TIMESTAMP)
    last: Any = np.int64(-1)
    null_keys: Any = np.int64(0)
    bad_timestamps: Any = np.int64(0)
    while True:
        fault, size = _checked(payload, at, end, rules, crc32_table)
        if fault != SetFault.NONE or size == 0:
            break
        message_end = at + size
        key_at = at + key_field + 4
        key_size = read_i32(payload, key_at - 4)
        if key_size > message_end - key_at - 4:
            fault = np.int64(SetFault.FIELDS)
            break
        value_at = key_at + max(key_size, np.int64(0)) + 4
        value_size = read_i32(payload, value_at - 4)
        if value_size > message_end - value_at:
            fault = np.int64(SetFault.FIELDS)
            break
        if count >= rules[SetRule.MOST_RECORDS]:
            fault = np.int64(SetFault.TOO_MANY)
            break
        timestamp = np.int64(layout.NO_TIMESTAMP)
        if rules[SetRule.MAGIC] == 1:
            timestamp = read_i64(payload, at + layout.LEGACY_TIMESTAMP_AT)
        if key_size < 0 and rules[SetRule.NEEDS_KEYS] != 0:
            null_keys += 1
        elif timestamp != layout.NO_TIMESTAMP and (
            timestamp < rules[SetRule.LOWEST] or timestamp > rules[SetRule.HIGHEST]
        ):
            bad_timestamps += 1
        if count == 0:
            base = timestamp
        largest = max(largest, timestamp)
        last = read_i64(payload, at)
        if null_keys == 0 and bad_timestamps == 0:  # else the set is refused
            filled = _write_record(
                payload, key_at, key_size, value_at, value_size, timestamp - base, count, out, filled
            )
        count += 1
        at = message_end
    facts[SetFact.COUNT], facts[SetFact.FILLED] = count, filled
    facts[SetFact.BASE_TIMESTAMP], facts[SetFact.MAX_TIMESTAMP] = base, largest
    facts[SetFact.LAST_OFFSET] = last
    facts[SetFact.NULL_KEYS], facts[SetFact.BAD_TIMESTAMPS] = null_keys, bad_timestamps
    facts[SetFact.END] = at
    return fault
