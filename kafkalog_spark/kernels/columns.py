"""Arrow columns as kernels take them, without Numba: whoever plans a query may make them.

Arrays are read-only views: Numba does not convert writable arrays inside of a tuple.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class BinaryColumn(NamedTuple):
    """Values of a binary or string array."""

    offsets: np.ndarray  # int32[n + 1]; empty: all are null
    data: np.ndarray  # uint8
    valid: np.ndarray  # uint8 bitmap; empty: none is null
    first_bit: int  # of the bitmap


class HeadersColumn(NamedTuple):
    """Lists of headers: those of row i are keys and values lists[i] to lists[i + 1]."""

    lists: np.ndarray  # int32[n + 1]; empty: no row has headers
    valid: np.ndarray  # uint8 bitmap; empty: no list is null
    first_bit: int  # of the bitmap
    keys: BinaryColumn
    values: BinaryColumn
