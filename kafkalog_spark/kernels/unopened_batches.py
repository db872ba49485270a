"""Rows of batches that are not decompressed, because their headers give the requested offsets and timestamps."""

from __future__ import annotations

import numpy as np

from kafkalog_spark.format.layout import MAX_TIMESTAMP_MS
from kafkalog_spark.kernels.primitives import kernel
from kafkalog_spark.kernels.rows import BatchColumn, Cursor, Limit, Status, passes_filter


@kernel
def rows_from_headers(payload, starts, ends, batches, cursor, limits, offset_filter, timestamp_filter, rows):  # type: ignore[no-untyped-def]
    """Append a row for each offset of the given v2 batches, with the batch's max timestamp.

    Arguments and result are those of decode_v2, so that the caller treats both kernels alike. `payload` and `ends` are
    not used; `starts` gives only the number of batches.
    """
    offset_out, timestamp_out, type_out = rows.offset, rows.timestamp, rows.timestamp_type
    row = cursor[Cursor.ROWS]
    for batch in range(cursor[Cursor.BATCH], starts.size):
        base_offset, last_delta = batches[batch, BatchColumn.BASE_OFFSET], batches[batch, BatchColumn.LAST_DELTA]
        timestamp, log_append = batches[batch, BatchColumn.MAX_TIMESTAMP], batches[batch, BatchColumn.LOG_APPEND]
        if limits[Limit.WANT_TIMESTAMP] != 0 and (timestamp > MAX_TIMESTAMP_MS or timestamp < -MAX_TIMESTAMP_MS):
            cursor[Cursor.ROWS], cursor[Cursor.BATCH] = row, batch
            cursor[Cursor.FAULT_OFFSET], cursor[Cursor.FAULT_TIMESTAMP] = base_offset, timestamp
            return np.int64(Status.TIMESTAMP_RANGE)
        first = max(base_offset, limits[Limit.OFFSET_FROM])
        if cursor[Cursor.POSITION] >= 0:
            first = cursor[Cursor.POSITION]
        for offset in range(first, min(base_offset + last_delta + 1, limits[Limit.OFFSET_UNTIL])):
            # With a filter on timestamps, select_batches leaves only batches with LogAppendTime to this kernel: all of
            # their records have the header's timestamp.
            if limits[Limit.TIMESTAMP_FROM] > timestamp or timestamp > limits[Limit.TIMESTAMP_LAST]:
                break
            if not (passes_filter(offset_filter, offset) and passes_filter(timestamp_filter, timestamp)):
                continue
            if row >= limits[Limit.ROWS]:
                cursor[Cursor.ROWS], cursor[Cursor.BATCH], cursor[Cursor.POSITION] = row, batch, offset
                return np.int64(Status.FULL)
            if limits[Limit.WANT_OFFSET] != 0:
                offset_out[row] = offset
            if limits[Limit.WANT_TIMESTAMP] != 0:
                timestamp_out[row] = timestamp * 1000
            if limits[Limit.WANT_TIMESTAMP_TYPE] != 0:
                type_out[row] = np.int32(log_append)
            row += 1
        cursor[Cursor.POSITION] = -1
    cursor[Cursor.ROWS], cursor[Cursor.BATCH], cursor[Cursor.POSITION] = row, starts.size, -1
    return np.int64(Status.DONE)
