"""A slice of bytes for each row, and the composition of rows from such columns.

An encoder makes slices of each leaf (a text, a varint ...), then joins those of a struct's fields row by row. A list is
the slices of its elements, which lie one after the other already, so it costs new offsets and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.errors import InvalidRecord
from kafkalog_spark.typed.columns.buffer_pool import bytes_and_offsets
from kafkalog_spark.typed.columns.byte_slices_kernel import append, plain_varints, zigzag_varints

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


# ByteSlices of numbers in binary: varints, what stands after its length, numbers of fixed width.

_MOST_BYTES = 10  # bytes of the longest varint of 64 bits


def whole_numbers(array: pa.Array) -> np.ndarray:
    """Whole numbers, dates (days) and timestamps (their units) of an array as int64[n]; 0 for null."""
    if not pa.types.is_integer(array.type):
        array = array.view(pa.int32() if pa.types.is_date32(array.type) else pa.int64())
    numbers: np.ndarray = pc.fill_null(array, 0).to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(numbers, np.int64)


def zigzags(values: np.ndarray) -> ByteSlices:
    """int64[n] as zigzag varints: Avro's int and long, Protobuf's sint32 and sint64."""
    return _varints(values, zigzag_varints)


def varints(values: np.ndarray) -> ByteSlices:
    """The 64 bits of int64[n] as varints: Protobuf's int64, uint64, bool and enum."""
    return _varints(values, plain_varints)


def _varints(values: np.ndarray, write: Callable[..., Any]) -> ByteSlices:
    made = ByteSlices(np.empty(max(len(values) * _MOST_BYTES, 1), np.uint8), np.empty(len(values) + 1, np.int64))
    write(values, made.data, made.offsets)
    return made


def sized(slices: ByteSlices, length: Callable[[np.ndarray], ByteSlices]) -> list[Fragment]:
    """ByteSlices after their lengths, which `length` writes: zigzags or varints."""
    return [Fragment(length(slices.sizes())), Fragment(slices)]


def fixed_width(array: pa.Array, dtype: str) -> ByteSlices:
    """Numbers and booleans as the bytes of a numpy dtype, such as "<f8"."""
    values = pc.fill_null(array, False if pa.types.is_boolean(array.type) else 0).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):  # a double beyond all floats is infinite, as in Java's cast
        values = np.ascontiguousarray(values.astype(dtype))
    return ByteSlices.of_rows(values.view(np.uint8).reshape(len(values), values.dtype.itemsize))


def unscaled_bytes(array: pa.Array) -> np.ndarray:
    """The unscaled numbers of decimals as two's complement, the highest byte first: uint8[n, 16]; any for null."""
    held = array.buffers()[1]
    rows = np.frombuffer(held, np.uint8, len(array) * 16, array.offset * 16).reshape(len(array), 16)
    return rows[:, ::-1]


def shortest_unscaled(rows: np.ndarray) -> ByteSlices:
    """Each number of uint8[n, 16] in as few bytes as keep its sign (BigInteger.toByteArray)."""
    width = rows.shape[1]
    negative = rows[:, :1] >> 7
    differs = rows ^ (negative * np.uint8(255))
    first = np.where(differs.any(axis=1), (differs != 0).argmax(axis=1), width - 1)
    taken = np.take_along_axis(differs, first[:, None], axis=1)[:, 0] >> 7  # the sign would be lost: one byte more
    first = first - taken
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(width - first, out=offsets[1:])
    return ByteSlices(np.ascontiguousarray(rows[np.arange(width) >= first[:, None]]), offsets)


# Entries of a column while rows are encoded, with the rows that they belong to, which errors name.

NOWHERE = -1  # the row of an entry that is not written, being inside of a null


class Entries(NamedTuple):
    """array: n entries; rows int64[n]: which row each is of, or NOWHERE."""

    array: pa.Array
    rows: np.ndarray

    @classmethod
    def of(cls, columns: pa.StructArray) -> Entries:
        """Rows as they are given to an encoder: a null one is a null value, of which nothing is written."""
        rows, valid = np.arange(len(columns)), valid_of(columns)
        return cls(columns, rows if valid is None else np.where(valid, rows, NOWHERE))

    def fields(self) -> list[Entries]:
        """Those of each field of a struct; what is inside of a null is null."""
        valid = valid_of(self.array)
        rows = self.rows if valid is None else np.where(valid, self.rows, NOWHERE)
        return [Entries(one, rows) for one in self.array.flatten()]

    def elements(self) -> tuple[Entries, np.ndarray]:
        """(The elements of all lists, or the entries of maps as structs; where those of each begin, int64[n + 1])."""
        array = self.array
        if pa.types.is_map(array.type):  # Arrow flattens lists only
            entries = pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"])
            bits, offsets = array.buffers()[:2]
            kind = pa.list_(entries.type)
            array = pa.Array.from_buffers(kind, len(array), [bits, offsets], offset=array.offset, children=[entries])
        sizes = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        offsets = np.zeros(len(array) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        return Entries(array.flatten(), np.repeat(self.rows, sizes)), offsets

    def refuse(self, wrong: np.ndarray, target: str, path: str, what: str) -> None:
        """Raises InvalidRecord for the first entry that is there, written and wrong, bool[n]."""
        if wrong.any():
            valid = valid_of(self.array)
            self._refuse_first(wrong if valid is None else wrong & valid, target, path, what)

    def refuse_nulls(self, target: str, path: str, what: str) -> None:
        """Raises InvalidRecord for the first entry that is null where something is to be written."""
        valid = valid_of(self.array)
        if valid is not None:
            self._refuse_first(~valid, target, path, what)

    def _refuse_first(self, wrong: np.ndarray, target: str, path: str, what: str) -> None:
        found = np.flatnonzero(wrong & (self.rows != NOWHERE))
        if len(found):
            raise InvalidRecord(f"row {self.rows[found[0]]} does not fit {target}: {path}: {what}")

    def places(self, names: Sequence[str], target: str, path: str, what: str) -> np.ndarray:
        """Which of some names each text is, int64[n]; any for null. Raises InvalidRecord for a text that is none."""
        found = pc.index_in(self.array.cast(pa.string()), pa.array(names, pa.string()))
        self.refuse(found.is_null().to_numpy(zero_copy_only=False), target, path, what)
        return whole_numbers(found)


# ByteSlices of texts.


def is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def is_binary(type_: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_large_binary(type_))
