"""A slice of bytes for each row, and the composition of rows from such columns.

An encoder makes slices of each leaf (a text, a varint ...), then joins those of a struct's fields row by row. A list is
the slices of its elements, which lie one after the other already, so it costs new offsets and nothing else.
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
    """Piece i of n is data[offsets[i]:offsets[i + 1]]. data: uint8[:]; offsets: int64[n + 1]."""

    data: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(cls, array: pa.Array) -> ByteSlices:
        """The bytes of a string or binary array (large ones too), as they are; any for null."""
        return cls(*bytes_and_offsets(array))

    @classmethod
    def of_rows(cls, rows: np.ndarray) -> ByteSlices:
        """ByteSlices of one width: rows is uint8[n, width]."""
        n, width = rows.shape
        return cls(np.ascontiguousarray(rows).reshape(-1), np.arange(n + 1, dtype=np.int64) * width)

    @classmethod
    def empty(cls, n: int) -> ByteSlices:
        """n slices without bytes."""
        return cls(np.zeros(1, np.uint8), np.zeros(n + 1, np.int64))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def sizes(self) -> np.ndarray:
        """Bytes of each slice, int64[n]."""
        return np.diff(self.offsets)

    def lists(self, offsets: np.ndarray) -> ByteSlices:
        """A slice for each list of slices: list i is the slices offsets[i] to offsets[i + 1]."""
        return ByteSlices(self.data, self.offsets[offsets])

    def array(self, valid: np.ndarray | None) -> pa.BinaryArray:
        """As Arrow has them; valid: bool[n], None for all. Raises InvalidRecord above 2 GB."""
        first, end = int(self.offsets[0]), int(self.offsets[-1])
        if end - first > MAX_INT32:
            raise InvalidRecord(
                f"{len(self)} rows make {end - first} bytes, and a batch holds 2 GB",
                hint="lower spark.sql.execution.arrow.maxRecordsPerBatch",
            )
        offsets = pa.py_buffer((self.offsets - first).astype(np.int32))
        bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
        return pa.Array.from_buffers(pa.binary(), len(self), [bits, offsets, pa.py_buffer(self.data[first:end])])


@dataclass(frozen=True)
class Fragment:
    """Fragment of each of n rows: `before` and the row's slice, or `absent` where `valid`, bool[n], is false."""

    slices: ByteSlices
    before: bytes = b""
    valid: np.ndarray | None = None
    absent: bytes = b""

    def sizes(self) -> np.ndarray:
        """Bytes of each row, int64[n]."""
        sizes = self.slices.sizes() + len(self.before)
        return sizes if self.valid is None else np.where(self.valid, sizes, len(self.absent))


def concat_fragments(parts: Sequence[Fragment]) -> ByteSlices:
    """The parts of each row, one after the other. There is one at least."""
    if len(parts) == 1 and parts[0].valid is None and not parts[0].before:
        return parts[0].slices
    offsets = np.zeros(len(parts[0].slices) + 1, np.int64)
    np.cumsum(sum((part.sizes() for part in parts[1:]), parts[0].sizes()), out=offsets[1:])
    made = ByteSlices(np.empty(max(int(offsets[-1]), 1), np.uint8), offsets)
    at = offsets[:-1].copy()
    for part in parts:
        valid = _NO_MASK if part.valid is None else part.valid
        before, absent = np.frombuffer(part.before, np.uint8), np.frombuffer(part.absent, np.uint8)
        append(made.data, at, part.slices.data, part.slices.offsets, valid, before, absent)
    return made


def prefixed(
    parts: Sequence[Fragment], before: bytes, valid: np.ndarray | None = None, absent: bytes = b""
) -> Sequence[Fragment]:
    """The parts of each row after `before`; where `valid`, bool[n], is false, `absent` alone."""
    if any(part.valid is not None for part in parts):
        if valid is None:
            return [Fragment(ByteSlices.empty(len(parts[0].slices)), before), *parts]
        parts = [Fragment(concat_fragments(parts))]
    first, *rest = parts
    first = replace(first, before=before + first.before, valid=valid, absent=absent)
    return [first, *(replace(part, valid=valid) for part in rest)]


def as_values(parts: Sequence[Fragment], prefix: bytes, valid: np.ndarray | None) -> pa.BinaryArray:
    """The parts of each row after the prefix, as a value; null where `valid` is false. Raises InvalidRecord."""
    return concat_fragments(prefixed(parts, prefix, valid)).array(valid)


def valid_of(array: pa.Array) -> np.ndarray | None:
    """Which entries are there, bool[n]; None for all."""
    return array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
