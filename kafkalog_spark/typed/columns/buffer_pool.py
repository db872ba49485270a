"""Memory of columns that nobody looks at any more, to be filled again."""

from __future__ import annotations

import sys
import sysconfig
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

LARGEST = 16 << 20
"""Bytes of an array that is kept: a batch of one huge value must not be paid for to the end of the task."""
MOST = 3  # arrays kept of one kind: the consumer has one batch in hand, and another one is on its way to it


def _references(arrays: list[np.ndarray]) -> list[int]:
    return [sys.getrefcount(array) for array in arrays]


_ALONE = _references([np.empty(1)])[0]  # reference count of an array that only the list holds
_COUNTS_ARE_EXACT = not sysconfig.get_config_var("Py_GIL_DISABLED")


class BufferPool:
    """Arrays by the column and the part of it that they are of.

    Fresh memory faults in page by page, which is a fifth of the time that a batch of short values takes to decode. An
    array is free when nothing but this refers to it: Arrow's buffers refer to the arrays that they are views of.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], list[np.ndarray]] = {}

    def take(self, number: int, which: int, size: int, dtype: Any) -> np.ndarray:
        """At least `size` numbers, of any content. which: what it is for, of the column (`Col`)."""
        kept = self._kept.setdefault((number, which), [])
        if _COUNTS_ARE_EXACT:
            for place, count in enumerate(_references(kept)):
                if count <= _ALONE and len(kept[place]) >= size:
                    return kept[place]
        new = np.empty(size, dtype)
        if _COUNTS_ARE_EXACT and new.nbytes <= LARGEST:
            kept.insert(0, new)
            del kept[MOST:]
        return new


# Binary Arrow arrays as kernels take them.

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
