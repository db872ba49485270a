"""The memory of the columns that a decoder fills, and the Arrow array that they become."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.typed.columns.buffer_pool import BufferPool
from kafkalog_spark.typed.columns.column_builder_kernel import MAX_INT32, Col, Mark, Room
from kafkalog_spark.typed.columns.java_text import well_formed
from kafkalog_spark.typed.columns.projection import ColumnTree

_SMALLEST = 1024


class FilledColumn(NamedTuple):
    """The n entries of a column as a kernel has filled them."""

    entries: int
    valid: np.ndarray | None  # uint8[n], 0 for null; None: no entry is null
    data: np.ndarray | None = None  # entries of fixed width (booleans a byte each), or the bytes of strings
    offsets: np.ndarray | None = None  # int32[n + 1]: strings, binaries, lists and maps
    repeats: bool = False  # a map may have a key twice
    java_texts: bool = False  # what is not UTF-8 becomes U+FFFD


def arrow_array(tree: ColumnTree, filled: Callable[[ColumnTree], FilledColumn]) -> pa.Array:
    """The array of a column, and of everything below it."""
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
    if column.repeats:
        return last_of_each_key(array)
    return well_formed(array) if column.java_texts else array


class ColumnBuffers:
    """The columns of a tree for `rows` values. `table` is what kernels take (`Col`), `marks` their notes."""

    def __init__(self, tree: ColumnTree, rows: int, bytes_: int, pool: BufferPool | None = None) -> None:
        """bytes_: of all values; a column of strings begins with as much, up to a megabyte. pool: of the same tree."""
        self._columns = tree.all()
        self._pool = pool or BufferPool()
        self.table = np.zeros((len(self._columns), len(Col)), np.int64)
        self.marks = np.zeros((len(self._columns), len(Mark)), np.int64)
        self.missing = np.zeros(len(Room), np.int64)
        self._memory: list[dict[Col, np.ndarray]] = [{} for _ in self._columns]
        for part in self._columns:
            row = self.table[part.number]
            row[Col.WIDTH] = _width(part.type)
            row[Col.CHILD] = part.children[0].number if _is_list(part.type) else 0
            self._room_for(part, max(rows, _SMALLEST))
            if _has_bytes(part.type):
                self._bytes_for(part.number, min(max(bytes_, _SMALLEST), 1 << 20))

    def grow(self) -> bool:
        """Double the room of the column noted in `missing`; False when Arrow's offsets cannot count more."""
        number, entries = int(self.missing[Room.COLUMN]), bool(self.missing[Room.OF_ENTRIES])
        row = self.table[number]
        room = int(row[Col.ROOM if entries else Col.BYTES_ROOM])
        if room >= MAX_INT32 - 1:
            return False
        if entries:
            self._room_for(self._columns[number], min(2 * room, MAX_INT32 - 1))
        else:
            self._bytes_for(number, min(2 * room, MAX_INT32 - 1))
        return True

    def finish(self, java_texts: Collection[int] = ()) -> pa.Array:
        """The root's array. java_texts: string columns where what is not UTF-8 is replaced, as in Java's String."""
        return arrow_array(self._columns[0], partial(self._filled, java_texts))

    def _room_for(self, part: ColumnTree, room: int) -> None:
        row, n = self.table[part.number], int(self.table[part.number, Col.ENTRIES])
        take = partial(self._pool.take, part.number)
        self._replace(part.number, Col.VALID, take(Col.VALID, room, np.uint8), n)
        if row[Col.WIDTH]:
            width = int(row[Col.WIDTH])
            self._replace(part.number, Col.DATA, take(Col.DATA, room * width, np.uint8), n * width)
        elif _is_list(part.type) or _has_bytes(part.type):
            offsets = take(Col.OFFSETS, room + 1, np.int32)
            offsets[0] = 0
            self._replace(part.number, Col.OFFSETS, offsets, n + 1)
        row[Col.ROOM] = room

    def _bytes_for(self, number: int, room: int) -> None:
        memory = self._pool.take(number, Col.DATA, room, np.uint8)
        self._replace(number, Col.DATA, memory, int(self.table[number, Col.BYTES]))
        self.table[number, Col.BYTES_ROOM] = len(memory)

    def _replace(self, number: int, which: Col, new: np.ndarray, keep: int) -> None:
        old = self._memory[number].get(which)
        if old is not None:
            new[:keep] = old[:keep]
        self._memory[number][which] = new
        self.table[number, which] = new.ctypes.data

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
            repeats=bool(row[Col.REPEATS]),
            java_texts=column.number in java_texts,
        )


def last_of_each_key(maps: Any) -> Any:
    """A MapArray with the last entry of each key only, as where Java puts them into a Map."""
    keys = maps.keys
    codes = pc.dictionary_encode(keys).indices.to_numpy(zero_copy_only=False).astype(np.int64)
    offsets = maps.offsets.to_numpy().astype(np.int64)
    owner = np.repeat(np.arange(len(maps)), np.diff(offsets))
    pairs = owner * (int(codes.max(initial=0)) + 1) + codes[offsets[0] : offsets[-1]]
    _, last = np.unique(pairs[::-1], return_index=True)
    kept = np.sort(len(pairs) - 1 - last)
    ends = np.concatenate(([0], np.cumsum(np.bincount(owner[kept], minlength=len(maps))))).astype(np.int32)
    places = pa.array(kept + offsets[0])
    entries = pa.StructArray.from_arrays(
        [keys.take(places), maps.items.take(places)], fields=[maps.type.key_field, maps.type.item_field]
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
