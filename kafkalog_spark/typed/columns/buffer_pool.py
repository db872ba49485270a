"""Reuse of the memory of decoded columns once no Arrow array refers to it any more."""

from __future__ import annotations

import sys
import sysconfig
from typing import Any

import numpy as np

MAX_KEPT_BYTES = 16 << 20
"""Larger arrays are not kept: one huge value should not occupy its memory until the task ends."""
MAX_KEPT_ARRAYS = 3
"""Arrays kept per column and role: more than one, because earlier batches are in use while the next one is decoded."""


def _reference_counts(arrays: list[np.ndarray]) -> list[int]:
    return [sys.getrefcount(array) for array in arrays]


_UNUSED = _reference_counts([np.empty(1)])[0]  # reference count of an array that only a list refers to
_COUNTS_ARE_EXACT = not sysconfig.get_config_var("Py_GIL_DISABLED")


class BufferPool:
    """Pool of arrays by column and role.

    The operating system maps fresh memory page by page, which is a considerable part of the time to decode a batch of
    short values (`benchmarks/typed_stages.py`). An array is free if only the pool refers to it; an Arrow buffer refers
    to the array that it is a view of. Not thread-safe.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], list[np.ndarray]] = {}

    def take(self, column: int, role: int, size: int, dtype: Any) -> np.ndarray:
        """Return an array of at least `size` elements with arbitrary content.

        Args:
            column: Number of the column.
            role: What the array is for in the column, a member of `Col`.
            size: Minimum number of elements.
            dtype: Type of the elements. It must be the same in all calls for one column and role.
        """
        kept = self._kept.setdefault((column, role), [])
        if _COUNTS_ARE_EXACT:
            for i, count in enumerate(_reference_counts(kept)):
                if count <= _UNUSED and len(kept[i]) >= size:
                    return kept[i]
        new = np.empty(size, dtype)
        if _COUNTS_ARE_EXACT and new.nbytes <= MAX_KEPT_BYTES:
            kept.insert(0, new)
            del kept[MAX_KEPT_ARRAYS:]
        return new
