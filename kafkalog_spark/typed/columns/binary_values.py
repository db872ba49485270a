"""Binary Arrow arrays in the form that kernels take."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

_NO_BYTES = np.frombuffer(b"\0", np.uint8)  # read-only as Arrow's buffers are, so that no kernel is compiled twice


def bytes_and_offsets(array: Any) -> tuple[np.ndarray, np.ndarray]:
    """Bytes and offsets of n strings or binaries (large ones too): their bytes, uint8[:] without a copy, and where each
    begins and the last one ends, int64[n + 1]."""
    n = len(array)
    kind = np.int64 if pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type) else np.int32
    _, offsets, data = array.buffers()
    at = np.zeros(n + 1, np.int64)
    if offsets is not None and n:
        at = np.frombuffer(offsets, kind, n + 1, array.offset * kind().itemsize).astype(np.int64)
    return np.frombuffer(data, np.uint8) if data is not None and data.size else _NO_BYTES, at


class Values(NamedTuple):
    """Value i is data[starts[i]:ends[i]]; ends[i] is -1 where there is none. data uint8[:], starts, ends int64[n]."""

    data: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, array: Any) -> Values:
        """The values of a binary or large_binary array, without a copy of their bytes."""
        data, at = bytes_and_offsets(array)
        ends = at[1:].copy()
        if array.null_count:
            ends[array.is_null().to_numpy(zero_copy_only=False)] = -1
        return cls(data, at[:-1], ends)
