"""Rows of batches that need not be opened: offsets without gaps, timestamps all equal or not asked for."""

from __future__ import annotations

import numpy as np

from kafkalog_spark.log.kernels.primitives import kernel
from kafkalog_spark.log.kernels.rows import MAX_TIMESTAMP_MS, is_member


@kernel
def rows_from_headers(payload, starts, ends, units, cursor, limits, offsets_in, timestamps_in, rows):  # type: ignore[no-untyped-def]
    """Append a row for each offset of some v2 batches, with the batch's max timestamp; arguments and answer as
    decode_v2.

    payload, starts and ends tell nothing here: the kernels are called alike.
    """
    offset_out, timestamp_out, type_out = rows.offset, rows.timestamp, rows.timestamp_type
    row = cursor[0]
    for unit in range(cursor[10], starts.size):
        base_offset, last_delta, timestamp, log_append = units[unit, 0], units[unit, 1], units[unit, 4], units[unit, 5]
        if limits[11] != 0 and (timestamp > MAX_TIMESTAMP_MS or timestamp < -MAX_TIMESTAMP_MS):
            cursor[0], cursor[10] = row, unit
            return 16
        first = max(base_offset, limits[6])
        if cursor[12] >= 0:
            first = cursor[12]
        for offset in range(first, min(base_offset + last_delta + 1, limits[7])):
            # uses_timestamps is false unless all timestamps are the header's: then the filter sees what it should
            if limits[8] > timestamp or timestamp > limits[9]:
                break
            if not (is_member(offsets_in, offset) and is_member(timestamps_in, timestamp)):
                continue
            if row >= limits[0]:
                cursor[0], cursor[10], cursor[12] = row, unit, offset
                return 1
            if limits[10] != 0:
                offset_out[row] = offset
            if limits[11] != 0:
                timestamp_out[row] = timestamp * 1000
            if limits[12] != 0:
                type_out[row] = np.int32(log_append)
            row += 1
        cursor[12] = -1
    cursor[0], cursor[10], cursor[12] = row, starts.size, -1
    return 0
