"""Binary Arrow arrays as kernels take them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa


class Values(NamedTuple):
    """Value i is data[starts[i]:ends[i]]; ends[i] is -1 where there is none. data uint8[:], starts, ends int64[n]."""

    data: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, array: Any) -> Values:
        """The values of a binary or large_binary array, without a copy of their bytes."""
        n = len(array)
        kind = np.int64 if pa.types.is_large_binary(array.type) else np.int32
        _, offsets, data = array.buffers()
        at = np.zeros(n + 1, np.int64)
        if offsets is not None and n:
            at = np.frombuffer(offsets, kind, n + 1, array.offset * kind().itemsize).astype(np.int64)
        ends = at[1:].copy()
        if array.null_count:
            ends[array.is_null().to_numpy(zero_copy_only=False)] = -1
        held = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
        return cls(held, at[:-1], ends)
