"""Compiled walks over the records of one v2 batch. Loads Numba.

record_walk imports this module when the first batch needs it. A broker that receives only small batches never does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from kafkalog_broker.storage.append.record_layouts import RecordColumn, WalkFact
from kafkalog_spark.format.records import RecordFault
from kafkalog_spark.kernels.encode import varint_size, write_varint
from kafkalog_spark.kernels.primitives import copy_bytes, kernel_for, varint, varint32
from kafkalog_spark.kernels.record_fields import record_fields

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_OUT = types.Array(types.uint8, 1, "C")
_FACTS = types.Array(types.int64, 1, "C")
_ROWS = types.Array(types.int64, 2, "C")
_I64 = types.int64


@kernel_for(_I64(_BYTES, _I64, _I64, _I64, _I64, _FACTS))
def walk(payload, start, end, count, base_timestamp, facts):  # type: ignore[no-untyped-def]
    """Check `count` records in payload[start:end] and fill `facts` (see WalkFact). Returns a RecordFault.

    Timestamps wrap around at 64 bits, as Java's do.
    """
    at = start
    max_timestamp = np.int64(-1)
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
        max_timestamp = max(max_timestamp, timestamp)
        if timestamp != -1:  # records without a timestamp are within all bounds
            low = min(low, timestamp)
            high = max(high, timestamp)
        if delta != index:
            in_sequence = np.int64(0)
        at = record_end
        index += 1
    if status == RecordFault.NONE and at != end:
        status = np.int64(RecordFault.TOO_MANY)
    facts[WalkFact.COUNT] = index
    facts[WalkFact.MAX_TIMESTAMP] = max_timestamp
    facts[WalkFact.SMALLEST_TIMESTAMP] = low
    facts[WalkFact.LARGEST_TIMESTAMP] = high
    facts[WalkFact.IN_SEQUENCE] = in_sequence
    facts[WalkFact.NULL_KEYS] = null_keys
    return status


@kernel_for(_I64(_BYTES, _I64, _I64, _I64, _ROWS))
def record_columns(payload, start, end, base_timestamp, columns):  # type: ignore[no-untyped-def]
    """Fill one row of `columns` (see RecordColumn) per record, up to a malformed one. Returns the number of rows."""
    at = start
    for index in range(columns.shape[0]):
        fault, record_end, timestamp_delta, delta, _, key_size, _ = record_fields(payload, at, end)
        if fault != RecordFault.NONE:
            return np.int64(index)
        columns[index, RecordColumn.TIMESTAMP] = base_timestamp + timestamp_delta
        columns[index, RecordColumn.OFFSET_DELTA] = delta
        columns[index, RecordColumn.KEY_SIZE] = key_size
        at = record_end
    return np.int64(columns.shape[0])


@kernel_for(_I64(_BYTES, _I64, _I64, _I64, _OUT))
def renumbered(payload, start, end, count, out):  # type: ignore[no-untyped-def]
    """Write `count` well-formed records to `out` with offset deltas 0, 1, 2 ..., and return their size in bytes.

    With an empty `out` only the size is computed.
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
