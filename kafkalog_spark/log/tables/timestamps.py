"""Timestamps as columns of tables, of the same type as in `records`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog_spark.format.layout import NO_TIMESTAMP

TIMESTAMP = pa.timestamp("us", tz="UTC")
"""Type of timestamp columns. A timestamp that it cannot represent (year 294,247 and later) is null."""
_LARGEST_MS = (2**63 - 1) // 1000


def timestamps(ms: npt.NDArray[np.int64], known: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return milliseconds as a column: null for -1, for timestamps not in `known`, and for those out of range."""
    good = (ms != NO_TIMESTAMP) & (ms >= -_LARGEST_MS) & (ms <= _LARGEST_MS)
    if known is not None:
        good &= known
    return pa.array(np.where(good, ms, 0) * 1000, mask=~good).cast(TIMESTAMP)


def timestamp_us(ms: int) -> int | None:
    """Return milliseconds as microseconds: None for -1 and for a timestamp out of range."""
    return ms * 1000 if ms != NO_TIMESTAMP and abs(ms) <= _LARGEST_MS else None
