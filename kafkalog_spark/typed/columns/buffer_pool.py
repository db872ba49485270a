"""Memory of columns that nobody looks at any more, to be filled again."""

from __future__ import annotations

import sys
import sysconfig
from typing import Any

import numpy as np

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
