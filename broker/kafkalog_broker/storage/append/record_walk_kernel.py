"""Walks over the records of one v2 batch, compiled. Imported by record_walk when the first batch needs it.

Importing this loads Numba (0.3 s, 25 MB), which a broker that serves small batches only does without.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from kafkalog_broker.storage.append.kernel_fields import Broken, FoundTimestamp, Refusal, Rules, WalkFact
from kafkalog_spark.format.records import RecordFault
from kafkalog_spark.kernels.encode import varint_size, write_varint
from kafkalog_spark.kernels.primitives import copy_bytes, kernel_for, varint, varint32
from kafkalog_spark.kernels.rows import record_fields

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_OUT = types.Array(types.uint8, 1, "C")
_FACTS = types.Array(types.int64, 1, "C")
_ROWS = types.Array(types.int64, 2, "C")
_I64 = types.int64


@kernel_for(_I64(_BYTES, _I64, _I64, _I64, _I64, _FACTS))
def walk(payload, start, end, count, base_timestamp, facts):  # type: ignore[no-untyped-def]
    """Check `count` records in payload[start:end]; returns a records.RecordFault. facts: see kernel_fields.WalkFact.

    Timestamps wrap around at 64 bits, as Java's do.
    """
    at = start
    max_timestamp = np.int64(-1)
    max_index = np.int64(-1)
    low = np.int64(2**63 - 1)
    high = np.int64(-(2**63))
    in_sequence = np.int64(1)
    null_keys: Any = np.int64(0)
    status: Any = np.int64(RecordFault.NONE)
    index: Any = np.int64(0)
    while index < count:
        fault, record_end, timestamp_delta, delta, _, key_size, _ = record_fields(payload, at, end)
        if fault != RecordFault.NONE:
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
    if status == RecordFault.NONE and at != end:
        status = np.int64(RecordFault.TOO_MANY)
    facts[WalkFact.COUNT] = index
    facts[WalkFact.AT] = at
    facts[WalkFact.MAX_TIMESTAMP] = max_timestamp
    facts[WalkFact.MAX_INDEX] = max_index
    facts[WalkFact.LOW] = low
    facts[WalkFact.HIGH] = high
    facts[WalkFact.IN_SEQUENCE] = in_sequence
    facts[WalkFact.NULL_KEYS] = null_keys
    return status


@kernel_for(_I64(_BYTES, _I64, _I64, _I64, _I64, _I64, _I64, _FACTS))
def find_timestamp(payload, start, end, count, base_timestamp, wanted, lowest_delta, found):  # type: ignore[no-untyped-def]
    """The first record with a timestamp >= `wanted` and an offset delta >= lowest_delta.

    found: see FoundTimestamp. Returns 1 when there is one, 0 when not, -1 for broken records.
    """
    at = start
    for _ in range(count):
        fault, record_end, timestamp_delta, delta, _, _, _ = record_fields(payload, at, end)
        if fault != RecordFault.NONE:
            return np.int64(-1)
        if base_timestamp + timestamp_delta >= wanted and delta >= lowest_delta:
            found[FoundTimestamp.TIMESTAMP] = base_timestamp + timestamp_delta
            found[FoundTimestamp.DELTA] = delta
            return np.int64(1)
        at = record_end
    return np.int64(0)


@kernel_for(_I64(_BYTES, _I64, _I64, _I64, _I64, _FACTS, _ROWS))
def refused(payload, start, end, count, base_timestamp, rules, found):  # type: ignore[no-untyped-def]
    """Which of `count` well-formed records in payload[start:end] break a rule.

    rules, in and out: see kernel_fields.Rules. found: int64[n, len(Broken)], filled with
    the first n of them. Returns how many break a rule.
    """
    lowest, highest = rules[Rules.LOWEST], rules[Rules.HIGHEST]
    needs_keys, append_time_set = rules[Rules.NEEDS_KEYS] != 0, rules[Rules.APPEND_TIME_SET] != 0
    refused_timestamps: Any = np.int64(0)
    total: Any = np.int64(0)
    at = start
    for index in range(count):
        fault, record_end, timestamp_delta, _, _, key_size, _ = record_fields(payload, at, end)
        if fault != RecordFault.NONE:  # the walk has seen to it that there are none
            break
        at = record_end
        timestamp = base_timestamp + timestamp_delta
        if needs_keys and key_size < 0:
            kind = np.int64(Refusal.NO_KEY)
        elif append_time_set:
            kind = np.int64(Refusal.APPEND_TIME_SET)
        elif timestamp != -1 and (timestamp < lowest or timestamp > highest):
            kind = np.int64(Refusal.TIMESTAMP)
        else:
            continue
        refused_timestamps += kind != Refusal.NO_KEY
        if total < found.shape[0]:
            found[total, Broken.PLACE], found[total, Broken.RULE] = index, kind
            found[total, Broken.TIMESTAMP] = timestamp
        total += 1
    rules[Rules.REFUSED_TIMESTAMPS] = refused_timestamps
    return total


@kernel_for(_I64(_BYTES, _I64, _I64, _I64, _OUT))
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
