"""Memory of the Arrow buffers into which rows are decoded, and its reuse.

An Arrow array that is built from a numpy array refers to it as long as the Arrow array exists, in whichever library.
When only their tuple still refers to the buffers of a batch, which their reference counts show, they can be filled
again. This relies on a detail of CPython. Free-threaded builds do not count exactly, so nothing is reused there.
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
_SIZES = [
    Limit.ROWS, Limit.KEY_BYTES, Limit.VALUE_BYTES, Limit.HEADERS, Limit.HEADER_KEY_BYTES, Limit.HEADER_VALUE_BYTES,
    Limit.WANT_OFFSET, Limit.WANT_TIMESTAMP, Limit.WANT_TIMESTAMP_TYPE,
]  # fmt: skip
"""Entries of `limits` that determine the sizes of the buffers. The other entries are the row filter. Its offset range
differs from segment to segment, but all segments can use the same buffers."""


class RowMemory:
    """Buffer sets that are filled again once no Arrow buffer refers to them any more."""

    def __init__(self) -> None:
        self._sizes = b""  # sizes of the last allocated set: the bytes of the _SIZES of its limits
        self._spare: list[tuple[bytes, Rows]] = []  # each with its sizes

    def allocate(self, limits: np.ndarray) -> Rows:
        """Return buffers of the sizes in `limits` (`Limit`): an unused spare set, or a new one. Bitmaps are zeroed."""
        sizes = limits[_SIZES].tobytes()
        for index, (spare_sizes, spare) in enumerate(self._spare):
            if spare_sizes == sizes and _is_unused(spare):
                del self._spare[index]
                rows = spare
                break
        else:
            rows = _new_rows(limits)
        self._sizes = sizes
        for bitmap in (rows.key_valid, rows.value_valid, rows.header_lists_valid, rows.header_value_valid):
            bitmap.fill(0)
        return rows

    def keep(self, rows: Rows) -> None:
        """Keep the last allocated set for reuse."""
        self._spare = [*self._spare, (self._sizes, rows)][-_SPARE_SETS:]

    def nbytes(self, rows: Rows) -> int:
        """Return the bytes of `rows` and of all spare sets. `rows` may be one of them."""
        sets = {id(each): each for each in (rows, *(spare for _, spare in self._spare))}
        return sum(array.nbytes for each in sets.values() for array in each)


def _new_rows(limits: np.ndarray) -> Rows:
    row_count, header_count = int(limits[Limit.ROWS]), int(limits[Limit.HEADERS])
    bitmap_bytes = (row_count + 7) // 8
    wants_key, wants_value = limits[Limit.KEY_BYTES] >= 0, limits[Limit.VALUE_BYTES] >= 0
    wants_headers = header_count >= 0
    return Rows(
        offset=_array(row_count, np.int64, limits[Limit.WANT_OFFSET] > 0),
        timestamp=_array(row_count, np.int64, limits[Limit.WANT_TIMESTAMP] > 0),
        timestamp_type=_array(row_count, np.int32, limits[Limit.WANT_TIMESTAMP_TYPE] > 0),
        key_offsets=_array(row_count + 1, np.int32, wants_key),
        key_data=_array(int(limits[Limit.KEY_BYTES]), np.uint8, wants_key),
        key_valid=_array(bitmap_bytes, np.uint8, wants_key),
        value_offsets=_array(row_count + 1, np.int32, wants_value),
        value_data=_array(int(limits[Limit.VALUE_BYTES]), np.uint8, wants_value),
        value_valid=_array(bitmap_bytes, np.uint8, wants_value),
        header_lists=_array(row_count + 1, np.int32, wants_headers),
        header_lists_valid=_array(bitmap_bytes, np.uint8, wants_headers),
        header_key_offsets=_array(header_count + 1, np.int32, wants_headers),
        header_key_data=_array(int(limits[Limit.HEADER_KEY_BYTES]), np.uint8, wants_headers),
        header_value_offsets=_array(header_count + 1, np.int32, wants_headers),
        header_value_data=_array(int(limits[Limit.HEADER_VALUE_BYTES]), np.uint8, wants_headers),
        header_value_valid=_array((header_count + 7) // 8, np.uint8, wants_headers),
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
