"""Memory of the Arrow buffers into which rows are decoded, and its reuse.

An Arrow array that is built from a numpy array refers to it as long as the Arrow array exists, in whichever library.
So the buffers of a batch may be filled again when nothing but their tuple refers to them. Their reference counts tell
that. This deliberately uses a detail of CPython, and free-threaded builds, which count lazily, reuse nothing.
"""

from __future__ import annotations

import sys
import sysconfig

import numpy as np
import numpy.typing as npt

from kafkalog_spark.kernels.rows import Limit, Rows

_SPARE_SETS = 2
"""Buffer sets to cycle through: the kernels fill one while Spark still holds the other. New memory is slower (benchmark
`decode`)."""


class RowMemory:
    """Buffer sets that are filled again once no Arrow buffer refers to them any more."""

    def __init__(self) -> None:
        self._size_key = b""  # limits for which the last set was allocated
        self._spare: list[tuple[bytes, Rows]] = []  # each with its size key

    def allocate(self, limits: np.ndarray) -> Rows:
        """Return buffers of the sizes in `limits` (`Limit`): an unused spare set, or a new one. Bitmaps are zeroed."""
        size_key = limits.tobytes()
        for index, (spare_key, spare) in enumerate(self._spare):
            if spare_key == size_key and _is_unused(spare):
                del self._spare[index]
                rows = spare
                break
        else:
            rows = _new_rows(limits)
        self._size_key = size_key
        for bitmap in (rows.key_valid, rows.value_valid, rows.header_lists_valid, rows.header_value_valid):
            bitmap.fill(0)
        return rows

    def keep(self, rows: Rows) -> None:
        """Keep the last allocated set for reuse."""
        self._spare = [*self._spare, (self._size_key, rows)][-_SPARE_SETS:]

    def nbytes(self, rows: Rows) -> int:
        """Return the bytes of `rows` and of all spare sets. `rows` may be one of them."""
        sets = {id(each): each for each in (rows, *(spare for _, spare in self._spare))}
        return sum(array.nbytes for each in sets.values() for array in each)


def _new_rows(limits: np.ndarray) -> Rows:
    rows, headers = int(limits[Limit.ROWS]), int(limits[Limit.HEADERS])
    key, value, lists = limits[Limit.KEY_BYTES] >= 0, limits[Limit.VALUE_BYTES] >= 0, headers >= 0
    return Rows(
        offset=_array(rows, np.int64, limits[Limit.WANT_OFFSET] > 0),
        timestamp=_array(rows, np.int64, limits[Limit.WANT_TIMESTAMP] > 0),
        timestamp_type=_array(rows, np.int32, limits[Limit.WANT_TIMESTAMP_TYPE] > 0),
        key_offsets=_array(rows + 1, np.int32, key),
        key_data=_array(int(limits[Limit.KEY_BYTES]), np.uint8, key),
        key_valid=_array((rows + 7) // 8, np.uint8, key),
        value_offsets=_array(rows + 1, np.int32, value),
        value_data=_array(int(limits[Limit.VALUE_BYTES]), np.uint8, value),
        value_valid=_array((rows + 7) // 8, np.uint8, value),
        header_lists=_array(rows + 1, np.int32, lists),
        header_lists_valid=_array((rows + 7) // 8, np.uint8, lists),
        header_key_offsets=_array(headers + 1, np.int32, lists),
        header_key_data=_array(int(limits[Limit.HEADER_KEY_BYTES]), np.uint8, lists),
        header_value_offsets=_array(headers + 1, np.int32, lists),
        header_value_data=_array(int(limits[Limit.HEADER_VALUE_BYTES]), np.uint8, lists),
        header_value_valid=_array((headers + 7) // 8, np.uint8, lists),
    )


def _array(size: int, dtype: npt.DTypeLike, is_wanted: bool) -> np.ndarray:
    """Allocate `size` elements (0 if not wanted). Only element 0 is set, as offsets must begin with 0."""
    array = np.empty(size if is_wanted else 0, dtype)
    array[:1] = 0
    return array


def _max_references(rows: Rows) -> int:
    return max((sys.getrefcount(array) for array in rows if array.size), default=0)


_UNSHARED_REFCOUNT = _max_references(Rows(*(np.empty(1) for _ in Rows._fields)))
"""Reference count of arrays to which only their tuple refers. It is measured, because a call adds references itself,
and their number depends on the interpreter."""
_COUNTS_ARE_EXACT = not sysconfig.get_config_var("Py_GIL_DISABLED")


def _is_unused(rows: Rows) -> bool:
    return _COUNTS_ARE_EXACT and _max_references(rows) <= _UNSHARED_REFCOUNT
