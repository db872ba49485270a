"""One run of bytes for each row, and how rows are put together from such columns.

An encoder makes pieces of each leaf (a text, a varint ...), then joins those of a struct's fields row by row. A list is
the pieces of its elements, which lie one after the other already, so it costs new offsets and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.errors import InvalidRecord
from kafkalog_spark.typed.columns.values import bytes_and_offsets
from kafkalog_spark.typed.pieces.pieces_kernel import append

MAX_INT32 = 2**31 - 1
_NO_MASK = np.empty(0, np.bool_)


class Pieces(NamedTuple):
    """Piece i of n is data[offsets[i]:offsets[i + 1]]. data: uint8[:]; offsets: int64[n + 1]."""

    data: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(cls, array: pa.Array) -> Pieces:
        """The bytes of a string or binary array (large ones too), as they are; any for null."""
        return cls(*bytes_and_offsets(array))

    @classmethod
    def of_rows(cls, rows: np.ndarray) -> Pieces:
        """Pieces of one width: rows is uint8[n, width]."""
        n, width = rows.shape
        return cls(np.ascontiguousarray(rows).reshape(-1), np.arange(n + 1, dtype=np.int64) * width)

    @classmethod
    def up_to(cls, n: int, most: int) -> Pieces:
        """Room for n pieces of at most so many bytes, and for where they begin, to be filled one after the other."""
        return cls(np.empty(max(n * most, 1), np.uint8), np.empty(n + 1, np.int64))

    @classmethod
    def empty(cls, n: int) -> Pieces:
        """n pieces without bytes."""
        return cls(np.zeros(1, np.uint8), np.zeros(n + 1, np.int64))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def sizes(self) -> np.ndarray:
        """Bytes of each piece, int64[n]."""
        return np.diff(self.offsets)

    def lists(self, offsets: np.ndarray) -> Pieces:
        """One piece for each list of pieces: list i is the pieces offsets[i] to offsets[i + 1]."""
        return Pieces(self.data, self.offsets[offsets])

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
class Part:
    """What stands in each of n rows: `before` and the row's piece, or `absent` where `valid`, bool[n], is false."""

    pieces: Pieces
    before: bytes = b""
    valid: np.ndarray | None = None
    absent: bytes = b""

    @property
    def is_plain(self) -> bool:
        """Whether the pieces are all that there is."""
        return self.valid is None and not self.before

    def sizes(self) -> np.ndarray:
        """Bytes of each row, int64[n]."""
        sizes = self.pieces.sizes() + len(self.before)
        return sizes if self.valid is None else np.where(self.valid, sizes, len(self.absent))

    def append_to(self, out: np.ndarray, at: np.ndarray) -> None:
        """Writes row i to out[at[i]:], and moves at[i] past it. out: uint8[:]; at: int64[n]."""
        valid = _NO_MASK if self.valid is None else self.valid
        before, absent = np.frombuffer(self.before, np.uint8), np.frombuffer(self.absent, np.uint8)
        append(out, at, self.pieces.data, self.pieces.offsets, valid, before, absent)


def joined(parts: Sequence[Part]) -> Pieces:
    """The parts of each row, one after the other. There is one at least."""
    if len(parts) == 1 and parts[0].is_plain:
        return parts[0].pieces
    offsets = np.zeros(len(parts[0].pieces) + 1, np.int64)
    np.cumsum(sum((part.sizes() for part in parts[1:]), parts[0].sizes()), out=offsets[1:])
    made = Pieces(np.empty(max(int(offsets[-1]), 1), np.uint8), offsets)
    at = offsets[:-1].copy()
    for part in parts:
        part.append_to(made.data, at)
    return made


def prefixed(
    parts: Sequence[Part], before: bytes, valid: np.ndarray | None = None, absent: bytes = b""
) -> Sequence[Part]:
    """The parts of each row after `before`; where `valid`, bool[n], is false, `absent` alone."""
    if any(part.valid is not None for part in parts):
        if valid is None:
            return [Part(Pieces.empty(len(parts[0].pieces)), before), *parts]
        parts = [Part(joined(parts))]
    first, *rest = parts
    first = replace(first, before=before + first.before, valid=valid, absent=absent)
    return [first, *(replace(part, valid=valid) for part in rest)]


def as_values(parts: Sequence[Part], prefix: bytes, valid: np.ndarray | None) -> pa.BinaryArray:
    """The parts of each row after the prefix, as a value; null where `valid` is false. Raises InvalidRecord."""
    return joined(prefixed(parts, prefix, valid)).array(valid)


def valid_of(array: pa.Array) -> np.ndarray | None:
    """Which entries are there, bool[n]; None for all."""
    return array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None


def elements(array: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """(The elements of all lists, or a map's entries as structs, and where those of each begin, int64[n + 1])."""
    if pa.types.is_map(array.type):  # Arrow flattens lists only
        entries = pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"])
        bits, offsets = array.buffers()[:2]
        kind = pa.list_(entries.type)
        array = pa.Array.from_buffers(kind, len(array), [bits, offsets], offset=array.offset, children=[entries])
    sizes = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return array.flatten(), offsets
