"""Rows of batches that are not decompressed, because their headers tell offsets and timestamps."""

from __future__ import annotations

import numpy as np

from kafkalog_spark.format.layout import MAX_TIMESTAMP_MS
from kafkalog_spark.kernels.primitives import (
    kernel,
)
from kafkalog_spark.kernels.rows import C, L, Status, U, is_member


@kernel
def rows_from_headers(payload, starts, ends, units, cursor, limits, offsets_in, timestamps_in, rows):  # type: ignore[no-untyped-def]
    """Append a row for each offset of some v2 batches, with the batch's max timestamp. Arguments, of which payload,
    starts and ends tell nothing here, and answer as decode_v2."""
    offset_out, timestamp_out, type_out = rows.offset, rows.timestamp, rows.timestamp_type
    row = cursor[C.ROWS]
    for unit in range(cursor[C.UNIT], starts.size):
        base_offset, last_delta = units[unit, U.BASE_OFFSET], units[unit, U.LAST_DELTA]
        timestamp, log_append = units[unit, U.MAX_TIMESTAMP], units[unit, U.LOG_APPEND]
        if limits[L.WANT_TIMESTAMP] != 0 and (timestamp > MAX_TIMESTAMP_MS or timestamp < -MAX_TIMESTAMP_MS):
            cursor[C.ROWS], cursor[C.UNIT] = row, unit
            cursor[C.FAULT_OFFSET], cursor[C.FAULT_TIMESTAMP] = base_offset, timestamp
            return np.int64(Status.TIMESTAMP_RANGE)
        first = max(base_offset, limits[L.OFFSET_FROM])
        if cursor[C.AT] >= 0:
            first = cursor[C.AT]
        for offset in range(first, min(base_offset + last_delta + 1, limits[L.OFFSET_UNTIL])):
            # uses_timestamps is false unless all timestamps are the header's: then the filter sees what it should
            if limits[L.TIMESTAMP_FROM] > timestamp or timestamp > limits[L.TIMESTAMP_LAST]:
                break
            if not (is_member(offsets_in, offset) and is_member(timestamps_in, timestamp)):
                continue
            if row >= limits[L.ROWS]:
                cursor[C.ROWS], cursor[C.UNIT], cursor[C.AT] = row, unit, offset
                return np.int64(Status.FULL)
            if limits[L.WANT_OFFSET] != 0:
                offset_out[row] = offset
            if limits[L.WANT_TIMESTAMP] != 0:
                timestamp_out[row] = timestamp * 1000
            if limits[L.WANT_TIMESTAMP_TYPE] != 0:
                type_out[row] = np.int32(log_append)
            row += 1
        cursor[C.AT] = -1
    cursor[C.ROWS], cursor[C.UNIT], cursor[C.AT] = row, starts.size, -1
    return np.int64(Status.DONE)
