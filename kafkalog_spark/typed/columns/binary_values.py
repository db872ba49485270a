"""Binary Arrow arrays as the NumPy arrays that kernels read."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

_NO_BYTES = np.frombuffer(b"\0", np.uint8)
"""Stands for an empty buffer. It is read-only, like Arrow's buffers, so that kernels are compiled for one type only."""


class Values(NamedTuple):
    """Values of a batch: value i is data[starts[i]:ends[i]], and ends[i] is -1 if it is null.

    Attributes:
        data: uint8[:], the bytes of all values.
        starts: int64[n].
        ends: int64[n].
    """

    data: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, array: Any) -> Values:
        """Return the values of a binary or large_binary array without copying their bytes."""
        data, offsets = bytes_and_offsets(array)
        ends = offsets[1:].copy()
        if array.null_count:
            ends[array.is_null().to_numpy(zero_copy_only=False)] = -1
        return cls(data, offsets[:-1], ends)


def bytes_and_offsets(array: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the buffers of a string or binary array, plain or large.

    Returns:
        (uint8[:], the data buffer without a copy; int64[n + 1], the offsets of the array's n elements in it).
    """
    n = len(array)
    dtype = np.int64 if pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type) else np.int32
    _, offset_buffer, data = array.buffers()
    offsets = np.zeros(n + 1, np.int64)
    if offset_buffer is not None and n:
        offsets = np.frombuffer(offset_buffer, dtype, n + 1, array.offset * dtype().itemsize).astype(np.int64)
    return np.frombuffer(data, np.uint8) if data is not None and data.size else _NO_BYTES, offsets
