"""Columns of byte slices, one per row, and their concatenation into encoded rows.

An encoder creates slices for each leaf, such as a string or a varint, and concatenates those of a struct's fields row
by row. The elements of a list are adjacent, so a list needs only new offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import InvalidRecord
from kafkalog_spark.typed.columns.binary_values import bytes_and_offsets
from kafkalog_spark.typed.columns.byte_slices_kernel import append

MAX_INT32 = 2**31 - 1
_NO_MASK = np.empty(0, np.bool_)


class ByteSlices(NamedTuple):
    """n slices of bytes: slice i is data[offsets[i]:offsets[i + 1]].

    Attributes:
        data: uint8[:].
        offsets: int64[n + 1].
    """

    data: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(cls, array: pa.Array) -> ByteSlices:
        """Return the bytes of a string or binary array, plain or large. A null gets an arbitrary slice."""
        return cls(*bytes_and_offsets(array))

    @classmethod
    def of_rows(cls, rows: np.ndarray) -> ByteSlices:
        """Return slices of equal width. rows: uint8[n, width]."""
        n, width = rows.shape
        return cls(np.ascontiguousarray(rows).reshape(-1), np.arange(n + 1, dtype=np.int64) * width)

    @classmethod
    def empty(cls, n: int) -> ByteSlices:
        """Return n empty slices."""
        return cls(np.zeros(1, np.uint8), np.zeros(n + 1, np.int64))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def sizes(self) -> np.ndarray:
        """Return the number of bytes of each slice, int64[n]."""
        return np.diff(self.offsets)

    def join_lists(self, offsets: np.ndarray) -> ByteSlices:
        """Join adjacent slices: slice i of the result consists of slices offsets[i] to offsets[i + 1]."""
        return ByteSlices(self.data, self.offsets[offsets])

    def to_array(self, valid: np.ndarray | None) -> pa.BinaryArray:
        """Return the slices as a binary array.

        Args:
            valid: bool[n], false for null; None if no row is null.

        Raises:
            InvalidRecord: If the slices have 2 GB or more.
        """
        first, end = int(self.offsets[0]), int(self.offsets[-1])
        if end - first > MAX_INT32:
            raise InvalidRecord(
                f"{len(self)} rows are encoded as {end - first} bytes, more than the 2 GB of a batch",
                hint="lower spark.sql.execution.arrow.maxRecordsPerBatch",
            )
        offsets = pa.py_buffer((self.offsets - first).astype(np.int32))
        bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
        return pa.Array.from_buffers(pa.binary(), len(self), [bits, offsets, pa.py_buffer(self.data[first:end])])


@dataclass(frozen=True)
class Fragment:
    """Part of the encoding of n rows: `prefix` and the row's slice, or `null_bytes` if the row is not valid.

    Attributes:
        slices: n slices.
        prefix: Bytes before each slice.
        valid: bool[n]; None if all rows are valid.
        null_bytes: Bytes instead of prefix and slice for a row that is not valid.
    """

    slices: ByteSlices
    prefix: bytes = b""
    valid: np.ndarray | None = None
    null_bytes: bytes = b""

    def sizes(self) -> np.ndarray:
        """Return the number of bytes of each row, int64[n]."""
        sizes = self.slices.sizes() + len(self.prefix)
        return sizes if self.valid is None else np.where(self.valid, sizes, len(self.null_bytes))


def concat_fragments(parts: Sequence[Fragment]) -> ByteSlices:
    """Concatenate the fragments of each row. There must be at least one."""
    if len(parts) == 1 and parts[0].valid is None and not parts[0].prefix:
        return parts[0].slices
    offsets = np.zeros(len(parts[0].slices) + 1, np.int64)
    np.cumsum(sum((part.sizes() for part in parts[1:]), parts[0].sizes()), out=offsets[1:])
    result = ByteSlices(np.empty(max(int(offsets[-1]), 1), np.uint8), offsets)
    positions = offsets[:-1].copy()
    for part in parts:
        valid = _NO_MASK if part.valid is None else part.valid
        prefix, null_bytes = np.frombuffer(part.prefix, np.uint8), np.frombuffer(part.null_bytes, np.uint8)
        append(result.data, positions, part.slices.data, part.slices.offsets, valid, prefix, null_bytes)
    return result


def prefixed(
    parts: Sequence[Fragment], prefix: bytes, valid: np.ndarray | None = None, null_bytes: bytes = b""
) -> Sequence[Fragment]:
    """Put a prefix before the fragments of each row.

    Args:
        parts: At least one fragment.
        prefix: Bytes before the first fragment.
        valid: bool[n]; None if all rows are valid.
        null_bytes: Bytes instead of prefix and fragments for a row that is not valid.
    """
    if any(part.valid is not None for part in parts):
        if valid is None:
            return [Fragment(ByteSlices.empty(len(parts[0].slices)), prefix), *parts]
        parts = [Fragment(concat_fragments(parts))]
    first, *rest = parts
    first = replace(first, prefix=prefix + first.prefix, valid=valid, null_bytes=null_bytes)
    return [first, *(replace(part, valid=valid) for part in rest)]


def as_values(parts: Sequence[Fragment], prefix: bytes, valid: np.ndarray | None) -> pa.BinaryArray:
    """Return each row's prefix and fragments as a value.

    Args:
        parts: At least one fragment.
        prefix: Bytes at the beginning of each value.
        valid: bool[n], false for a null value; None if no value is null.

    Raises:
        InvalidRecord: If the values have 2 GB or more.
    """
    return concat_fragments(prefixed(parts, prefix, valid)).to_array(valid)


def valid_of(array: pa.Array) -> np.ndarray | None:
    """Return which entries are not null, bool[n]; None if none is null."""
    return array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
