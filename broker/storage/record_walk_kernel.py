"""The walk over the records of one v2 batch, compiled. Imported by record_walk when the first batch needs it.

Importing this loads Numba (0.1 s, 60 MB), which a broker that serves small batches only does without.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from kafkalog_spark.log.kernels.primitives import JIT, TOO_FAR, varint

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_FACTS = types.Array(types.int64, 1, "C")
_I64 = types.int64


@njit(_I64(_BYTES, _I64, _I64, _I64, _I64, _FACTS), **JIT)
def walk(payload, start, end, count, base_timestamp, facts):  # type: ignore[no-untyped-def]
    """Check `count` records in payload[start:end]; returns a record_walk.Walk. facts: see record_walk.F.

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
        size, body = varint(payload, at, end)
        if body > end:
            status = 1
            break
        if size < 0:
            status = 2
            break
        if size > end - body:
            status = 1
            break
        body_end = body + size
        timestamp_delta, cur = varint(payload, body + 1, body_end)
        delta, cur = varint(payload, cur, body_end)
        key_size, cur = varint(payload, cur, body_end)
        if cur > body_end or key_size > body_end - cur:
            status = 3
            break
        if key_size < 0:
            null_keys += 1
        else:
            cur += key_size
        value_size, cur = varint(payload, cur, body_end)
        if cur > body_end or value_size > body_end - cur:
            status = 3
            break
        cur += max(value_size, np.int64(0))
        headers, cur = varint(payload, cur, body_end)
        if cur > body_end or headers < 0 or headers > body_end - cur:
            status = 3
            break
        for _ in range(headers):
            key_size, cur = varint(payload, cur, body_end)
            if cur > body_end or key_size < 0 or key_size > body_end - cur:
                cur = TOO_FAR
                break
            value_size, cur = varint(payload, cur + key_size, body_end)
            if cur > body_end or value_size > body_end - cur:
                cur = TOO_FAR
                break
            cur += max(value_size, np.int64(0))
        if cur != body_end:
            status = 3
            break
        timestamp = base_timestamp + timestamp_delta
        if timestamp > max_timestamp:
            max_timestamp = timestamp
            max_index = index
        if timestamp != -1:  # records without a timestamp are not held against any bound
            low = min(low, timestamp)
            high = max(high, timestamp)
        if delta != index:
            in_sequence = np.int64(0)
        at = body_end
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
        size, body = varint(payload, at, end)
        if body > end or size < 0 or size > end - body:
            return np.int64(-1)
        timestamp_delta, cur = varint(payload, body + 1, body + size)
        delta, cur = varint(payload, cur, body + size)
        if cur > body + size:
            return np.int64(-1)
        if base_timestamp + timestamp_delta >= wanted and delta >= lowest_delta:
            found[0] = base_timestamp + timestamp_delta
            found[1] = delta
            return np.int64(1)
        at = body + size
    return np.int64(0)
