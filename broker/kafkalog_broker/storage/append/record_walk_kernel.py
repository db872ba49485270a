"""Walks over the records of one v2 batch, compiled. Imported by record_walk when the first batch needs it.

Importing this loads Numba (0.1 s, 60 MB), which a broker that serves small batches only does without.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from kafkalog_spark.log.kernels.encode import varint_size, write_varint
from kafkalog_spark.log.kernels.primitives import JIT, copy_bytes, varint, varint32
from kafkalog_spark.log.kernels.record_fields import record_fields

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_OUT = types.Array(types.uint8, 1, "C")
_FACTS = types.Array(types.int64, 1, "C")
_ROWS = types.Array(types.int64, 2, "C")
_I64 = types.int64


@njit(_I64(_BYTES, _I64, _I64, _I64, _I64, _FACTS), **JIT)
def walk(payload, start, end, count, base_timestamp, facts):  # type: ignore[no-untyped-def]
    """Check `count` records in payload[start:end]; returns a records.RecordFault. facts: see record_walk.F.

    Timestamps wrap around at 64 bits, as Java's do.
    """
    at = start
    max_timestamp = np.int64(-1)
    max_index = np.int64(-1)
    low = np.int64(2**63 - 1)
    high = np.int64(-(2**63))
    in_sequence = np.int64(1)
    null_keys: Any = np.int64(0)
    status: Any = np.int64(0)
    index: Any = np.int64(0)
    while index < count:
        fault, record_end, timestamp_delta, delta, _, key_size, _ = record_fields(payload, at, end)
        if fault != 0:
            status = np.int64(fault)
            break
        null_keys += key_size < 0
        timestamp = base_timestamp + timestamp_delta
        if timestamp > max_timestamp:
            max_timestamp = timestamp
            max_index = index
        if timestamp != -1:  # records without a timestamp are not held against any bound
            low = min(low, timestamp)
            high = max(high, timestamp)
        if delta != index:
            in_sequence = np.int64(0)
        at = record_end
        index += 1
    if status == 0 and at != end:
        status = np.int64(4)
    facts[0] = index
    facts[1] = at
    facts[2] = max_timestamp
    facts[3] = max_index
    facts[4] = low
    facts[5] = high
    facts[6] = in_sequence
    facts[7] = null_keys
    return status


@njit(_I64(_BYTES, _I64, _I64, _I64, _I64, _I64, _I64, _FACTS), **JIT)
def find_timestamp(payload, start, end, count, base_timestamp, wanted, lowest_delta, found):  # type: ignore[no-untyped-def]
    """The first record with a timestamp >= `wanted` and an offset delta >= lowest_delta.

    found: its (timestamp, offset delta). Returns 1 when there is one, 0 when not, -1 for broken records.
    """
    at = start
    for _ in range(count):
        fault, record_end, timestamp_delta, delta, _, _, _ = record_fields(payload, at, end)
        if fault != 0:
            return np.int64(-1)
        if base_timestamp + timestamp_delta >= wanted and delta >= lowest_delta:
            found[0] = base_timestamp + timestamp_delta
            found[1] = delta
            return np.int64(1)
        at = record_end
    return np.int64(0)


@njit(_I64(_BYTES, _I64, _I64, _I64, _I64, _FACTS, _ROWS), **JIT)
def refused(payload, start, end, count, base_timestamp, rules, found):  # type: ignore[no-untyped-def]
    """Which of `count` well-formed records in payload[start:end] break a rule.

    rules, in and out: see record_walk.Rules. found: int64[n, 3], filled with (place, record_walk.Refusal, timestamp) of
    the first n of them. Returns how many break a rule.
    """
    lowest, highest, needs_keys, append_time_set = rules[0], rules[1], rules[2] != 0, rules[3] != 0
    refused_timestamps: Any = np.int64(0)
    total: Any = np.int64(0)
    at = start
    for index in range(count):
        fault, record_end, timestamp_delta, _, _, key_size, _ = record_fields(payload, at, end)
        if fault != 0:  # the walk has seen to it that there are none
            break
        at = record_end
        timestamp = base_timestamp + timestamp_delta
        if needs_keys and key_size < 0:
            kind = np.int64(1)
        elif append_time_set:
            kind = np.int64(2)
        elif timestamp != -1 and (timestamp < lowest or timestamp > highest):
            kind = np.int64(3)
        else:
            continue
        refused_timestamps += kind != 1
        if total < found.shape[0]:
            found[total, 0], found[total, 1], found[total, 2] = index, kind, timestamp
        total += 1
    rules[4] = refused_timestamps
    return total


@njit(_I64(_BYTES, _I64, _I64, _I64, _OUT), **JIT)
def renumbered(payload, start, end, count, out):  # type: ignore[no-untyped-def]
    """Write `count` well-formed records of payload[start:end] to `out` with offset deltas 0, 1, 2 ...

    Returns the bytes that takes. With an `out` of no bytes nothing is written: that is how to learn what room it needs.
    """
    at = start
    filled: Any = np.int64(0)
    for index in range(count):
        size, body = varint32(payload, at, end)
        at = body + size
        _, delta_at = varint(payload, body + 1, at)
        _, delta_end = varint32(payload, delta_at, at)
        before, after = delta_at - body, at - delta_end
        new_size = before + varint_size(np.int64(index)) + after
        if out.size == 0:
            filled += varint_size(new_size) + new_size
            continue
        filled = write_varint(out, filled, new_size)
        copy_bytes(out, filled, payload, body, before)
        filled = write_varint(out, filled + before, np.int64(index))
        copy_bytes(out, filled, payload, delta_end, after)
        filled += after
    return filled
