"""Growable buffers of the columns that a kernel fills, and their conversion to an Arrow array."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.typed.columns.buffer_pool import BufferPool
from kafkalog_spark.typed.columns.column_builder_kernel import MAX_INT32, Col, FullColumn, Mark
from kafkalog_spark.typed.columns.java_text import well_formed
from kafkalog_spark.typed.columns.projection import ColumnTree

_MIN_SIZE = 1024  # entries or bytes of a new buffer
_MAX_INITIAL_BYTES = 1 << 20


class FilledColumn(NamedTuple):
    """The n entries of one column after decoding."""

    entries: int
    valid: np.ndarray | None  # uint8[n], 0 for null; None if no entry is null
    data: np.ndarray | None = None  # entries of fixed width (one byte per boolean), or the bytes of strings
    offsets: np.ndarray | None = None  # int32[n + 1], of strings, binaries, lists and maps
    may_repeat_keys: bool = False  # whether a map of the column may have a key twice
    java_texts: bool = False  # whether bytes of strings that are not UTF-8 become U+FFFD


def arrow_array(tree: ColumnTree, filled: Callable[[ColumnTree], FilledColumn]) -> pa.Array:
    """Return the Arrow array of a column and its descendants.

    Args:
        tree: The column.
        filled: Function that returns the entries of a column.
    """
    column, type_ = filled(tree), tree.type
    n, nulls, bits = column.entries, 0, None
    if pa.types.is_null(type_):
        return pa.nulls(n)
    if column.valid is not None:
        nulls = n - int(np.count_nonzero(column.valid))
        bits = pa.py_buffer(np.packbits(column.valid, bitorder="little")) if nulls else None
    buffers = [bits]
    if column.offsets is not None:
        buffers.append(pa.py_buffer(column.offsets))
    if column.data is not None:
        data = np.packbits(column.data, bitorder="little") if pa.types.is_boolean(type_) else column.data
        buffers.append(pa.py_buffer(data))
    children = [arrow_array(child, filled) for child in tree.children]
    array = pa.Array.from_buffers(type_, n, buffers, nulls, children=children or None)
    if column.may_repeat_keys:
        return last_of_each_key(array)
    return well_formed(array) if column.java_texts else array


class ColumnBuffers:
    """Buffers of all columns of a tree.

    Attributes:
        table: int64[columns, len(Col)], the buffers' addresses and sizes for kernels.
        marks: int64[columns, len(Mark)], working memory of kernels.
        full_column: int64[len(FullColumn)], the column that a kernel found full.
    """

    def __init__(self, tree: ColumnTree, rows: int, bytes_: int, pool: BufferPool | None = None) -> None:
        """Allocate buffers that are large enough for a typical batch.

        Args:
            tree: The root column.
            rows: Number of values in the batch.
            bytes_: Size of all values in bytes.
            pool: Pool of arrays, used for this tree only.
        """
        self._columns = tree.preorder()
        self._pool = pool or BufferPool()
        self.table = np.zeros((len(self._columns), len(Col)), np.int64)
        self.marks = np.zeros((len(self._columns), len(Mark)), np.int64)
        self.full_column = np.zeros(len(FullColumn), np.int64)
        self._memory: list[dict[Col, np.ndarray]] = [{} for _ in self._columns]
        for part in self._columns:
            row = self.table[part.number]
            row[Col.WIDTH] = _width(part.type)
            row[Col.CHILD] = part.children[0].number if _is_list(part.type) else 0
            self._reserve_entries(part, max(rows, _MIN_SIZE))
            if _has_bytes(part.type):
                self._reserve_bytes(part.number, min(max(bytes_, _MIN_SIZE), _MAX_INITIAL_BYTES))

    def grow(self) -> bool:
        """Double the buffer of the full column. Return False if Arrow's 32-bit offsets cannot address more."""
        number, entries = int(self.full_column[FullColumn.COLUMN]), bool(self.full_column[FullColumn.LACKS_ENTRIES])
        row = self.table[number]
        room = int(row[Col.ROOM if entries else Col.BYTES_ROOM])
        if room >= MAX_INT32 - 1:
            return False
        if entries:
            self._reserve_entries(self._columns[number], min(2 * room, MAX_INT32 - 1))
        else:
            self._reserve_bytes(number, min(2 * room, MAX_INT32 - 1))
        return True

    def finish(self, java_texts: Collection[int] = ()) -> pa.Array:
        """Return the array of the root.

        Args:
            java_texts: Numbers of the string columns in which bytes that are not UTF-8 are replaced by U+FFFD.
        """
        return arrow_array(self._columns[0], partial(self._filled, java_texts))

    def _reserve_entries(self, part: ColumnTree, room: int) -> None:
        row, n = self.table[part.number], int(self.table[part.number, Col.ENTRIES])
        take_array = partial(self._pool.take, part.number)
        self._replace(part.number, Col.VALID, take_array(Col.VALID, room, np.uint8), n)
        if row[Col.WIDTH]:
            width = int(row[Col.WIDTH])
            self._replace(part.number, Col.DATA, take_array(Col.DATA, room * width, np.uint8), n * width)
        elif _is_list(part.type) or _has_bytes(part.type):
            offsets = take_array(Col.OFFSETS, room + 1, np.int32)
            offsets[0] = 0
            self._replace(part.number, Col.OFFSETS, offsets, n + 1)
        row[Col.ROOM] = room

    def _reserve_bytes(self, number: int, room: int) -> None:
        memory = self._pool.take(number, Col.DATA, room, np.uint8)
        self._replace(number, Col.DATA, memory, int(self.table[number, Col.BYTES]))
        self.table[number, Col.BYTES_ROOM] = len(memory)

    def _replace(self, number: int, role: Col, new: np.ndarray, used: int) -> None:
        """Replace an array of a column by a larger one. used: number of elements to copy."""
        old = self._memory[number].get(role)
        if old is not None:
            new[:used] = old[:used]
        self._memory[number][role] = new
        self.table[number, role] = new.ctypes.data

    def _filled(self, java_texts: Collection[int], column: ColumnTree) -> FilledColumn:
        row, memory = self.table[column.number], self._memory[column.number]
        n, type_ = int(row[Col.ENTRIES]), column.type
        data = memory.get(Col.DATA)
        if data is not None:
            data = data[: int(row[Col.BYTES]) if _has_bytes(type_) else n * int(row[Col.WIDTH])]
        offsets = memory.get(Col.OFFSETS)
        return FilledColumn(
            n,
            memory[Col.VALID][:n],
            data,
            None if offsets is None else offsets[: n + 1],
            may_repeat_keys=bool(row[Col.MAY_REPEAT_KEYS]),
            java_texts=column.number in java_texts,
        )


def last_of_each_key(maps: Any) -> Any:
    """Return a MapArray with only the last entry of each key, like a `java.util.Map` filled in order."""
    keys = maps.keys
    codes = pc.dictionary_encode(keys).indices.to_numpy(zero_copy_only=False).astype(np.int64)
    offsets = maps.offsets.to_numpy().astype(np.int64)
    owner = np.repeat(np.arange(len(maps)), np.diff(offsets))
    pairs = owner * (int(codes.max(initial=0)) + 1) + codes[offsets[0] : offsets[-1]]
    _, last = np.unique(pairs[::-1], return_index=True)
    kept_pairs = np.sort(len(pairs) - 1 - last)
    ends = np.concatenate(([0], np.cumsum(np.bincount(owner[kept_pairs], minlength=len(maps))))).astype(np.int32)
    indices = pa.array(kept_pairs + offsets[0])
    entries = pa.StructArray.from_arrays(
        [keys.take(indices), maps.items.take(indices)], fields=[maps.type.key_field, maps.type.item_field]
    )
    bits = maps.buffers()[0]
    return pa.Array.from_buffers(maps.type, len(maps), [bits, pa.py_buffer(ends)], maps.null_count, children=[entries])


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_map(type_))


def _has_bytes(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_binary(type_))


def _width(type_: pa.DataType) -> int:
    if pa.types.is_boolean(type_):
        return 1
    if pa.types.is_decimal(type_) or pa.types.is_primitive(type_):
        return int(type_.bit_width // 8)
    return 0
