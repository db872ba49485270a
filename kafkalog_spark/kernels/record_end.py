"""Find the end of the records in a decompressed batch."""

from __future__ import annotations

import numpy as np

from kafkalog_spark.kernels.primitives import kernel, varint32

TRUNCATED = -1  # result of end_of_records: the payload ends before the records do
BAD_RECORD_LENGTH = -2  # result of end_of_records: a record has a negative length


@kernel
def end_of_records(payload, start, end, count):  # type: ignore[no-untyped-def]
    """Return the position after `count` v2 records in payload[start:end], or TRUNCATED, or BAD_RECORD_LENGTH.

    Decompression of a batch that continues past this position produces more records than the header announces.
    payload: uint8[].
    """
    at = start
    for _ in range(count):
        size, body = varint32(payload, at, end)
        if body > end:  # INVALID_POSITION, for a varint that goes past `end`
            return np.int64(TRUNCATED)
        if size < 0:
            return np.int64(BAD_RECORD_LENGTH)
        if size > end - body:
            return np.int64(TRUNCATED)
        at = body + size
    return at
