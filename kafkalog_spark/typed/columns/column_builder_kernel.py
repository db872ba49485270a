"""Kernel side of the column builder: appending to columns through one row of an int64 table each.

A kernel gets columns of any number and type as one table, `columns` int64[n, len(Col)], with the addresses of their
buffers, so it is compiled once and not for every schema. Every `put_...` returns whether the entry fitted; where it did
not, the kernel stops, its caller grows the column (`ColumnBuffers.grow`), and the value is decoded again from its
beginning.

Decoding steps return one int64, their result: 0, a fault above 0, or `full(column)` below 0.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kafkalog_spark.kernels.primitives import byte_pointer, helper, inlined


class Col(IntEnum):
    """Fields of a column's row in the table."""

    ENTRIES = 0  # how many it has
    ROOM = 1  # how many fit
    VALID = 2  # address of uint8[ROOM]: 1 where the entry is not null
    DATA = 3  # address of the entries of fixed width, or of the bytes of strings
    WIDTH = 4  # bytes of an entry of fixed width; 0: none has data (structs, nulls), or they vary
    OFFSETS = 5  # address of int32[ROOM + 1]: strings, binaries, lists and maps; 0 elsewhere
    BYTES = 6  # of strings and binaries: how many bytes there are
    BYTES_ROOM = 7  # and how many fit
    CHILD = 8  # of lists and maps: the column of the elements (of a map: its entries, a struct)
    REPEATS = 9  # of maps: whether one may have a key twice


MAX_INT32 = 2**31 - 1


def _store(kind: Any, bits: Any) -> Any:
    """An intrinsic (address, index, value) that stores `value` as element `index` of an array of `kind` there."""

    @intrinsic
    def store(typingctx, address, index, value):  # type: ignore[no-untyped-def]
        signature = types.void(types.int64, types.int64, kind)

        def generate(context, builder, sig, args):  # type: ignore[no-untyped-def]
            pointer = builder.inttoptr(args[0], bits.as_pointer())
            builder.store(args[2], builder.gep(pointer, [args[1]]), align=1)
            return context.get_dummy_value()

        return signature, generate

    return store


store_u8 = _store(types.uint8, ir.IntType(8))
store_i32 = _store(types.int32, ir.IntType(32))
store_i64 = _store(types.int64, ir.IntType(64))
store_f32 = _store(types.float32, ir.FloatType())
store_f64 = _store(types.float64, ir.DoubleType())


@intrinsic
def copy_to(typingctx, address, at, source, source_at, count):  # type: ignore[no-untyped-def]
    """memcpy of `count` bytes of the uint8 array `source`, from source_at on, to address + at."""
    signature = types.void(types.int64, types.int64, source, types.int64, types.int64)

    def generate(context, builder, sig, args):  # type: ignore[no-untyped-def]
        to = builder.gep(builder.inttoptr(args[0], ir.IntType(8).as_pointer()), [args[1]])
        cgutils.raw_memcpy(builder, to, byte_pointer(context, builder, sig.args[2], args[2], args[3]), args[4], 1)
        return context.get_dummy_value()

    return signature, generate


def _element(kind: Any, bits: Any) -> Any:
    """An intrinsic (address, index): element `index` of the array of `kind` there."""

    @intrinsic
    def element(typingctx, address, index):  # type: ignore[no-untyped-def]
        signature = kind(types.int64, types.int64)

        def generate(context, builder, sig, args):  # type: ignore[no-untyped-def]
            return builder.load(builder.gep(builder.inttoptr(args[0], bits.as_pointer()), [args[1]]))

        return signature, generate

    return element


byte_at, int32_at = _element(types.uint8, ir.IntType(8)), _element(types.int32, ir.IntType(32))


@inlined
def full(column):  # type: ignore[no-untyped-def]
    """Result of a step for which a column has no room. It is its own inverse: full(full(column)) == column."""
    return -1 - column


def _put(store: Any, kind: Any) -> Any:
    """A function that puts a value as an entry of a column of fixed width."""

    @inlined
    def put(columns, c, value):  # type: ignore[no-untyped-def]
        n = columns[c, Col.ENTRIES]
        if n >= columns[c, Col.ROOM]:
            return False
        store(columns[c, Col.DATA], n, kind(value))
        store_u8(columns[c, Col.VALID], n, np.uint8(1))
        columns[c, Col.ENTRIES] = n + 1
        return True

    return put


put_i32, put_i64 = _put(store_i32, np.int32), _put(store_i64, np.int64)
put_f32, put_f64 = _put(store_f32, np.float32), _put(store_f64, np.float64)
put_bool = _put(store_u8, np.uint8)
"""A boolean is put as a byte; bytes become bits when the column is finished."""


@inlined
def put_i128(columns, c, low, high):  # type: ignore[no-untyped-def]
    """The low and the high 64 bits of a decimal's unscaled value."""
    n = columns[c, Col.ENTRIES]
    if n >= columns[c, Col.ROOM]:
        return False
    store_i64(columns[c, Col.DATA], 2 * n, np.int64(low))
    store_i64(columns[c, Col.DATA], 2 * n + 1, np.int64(high))
    store_u8(columns[c, Col.VALID], n, np.uint8(1))
    columns[c, Col.ENTRIES] = n + 1
    return True


@inlined
def put_bytes(columns, c, source, at, count):  # type: ignore[no-untyped-def]
    """The entry of a string or binary column: source[at:at + count]."""
    n = columns[c, Col.ENTRIES]
    used = columns[c, Col.BYTES]
    if n >= columns[c, Col.ROOM] or used + count > columns[c, Col.BYTES_ROOM]:
        return False
    copy_to(columns[c, Col.DATA], used, source, at, count)
    store_i32(columns[c, Col.OFFSETS], n + 1, np.int32(used + count))
    columns[c, Col.BYTES] = used + count
    store_u8(columns[c, Col.VALID], n, np.uint8(1))
    columns[c, Col.ENTRIES] = n + 1
    return True


@inlined
def put_struct(columns, c):  # type: ignore[no-untyped-def]
    """A struct that is not null; its fields have one entry each, put by themselves."""
    n = columns[c, Col.ENTRIES]
    if n >= columns[c, Col.ROOM]:
        return False
    store_u8(columns[c, Col.VALID], n, np.uint8(1))
    columns[c, Col.ENTRIES] = n + 1
    return True


@helper
def put_list(columns, c):  # type: ignore[no-untyped-def]
    """A list or map whose elements are what its child has got since the entry before."""
    n = columns[c, Col.ENTRIES]
    if n >= columns[c, Col.ROOM]:
        return False
    store_i32(columns[c, Col.OFFSETS], n + 1, np.int32(columns[columns[c, Col.CHILD], Col.ENTRIES]))
    store_u8(columns[c, Col.VALID], n, np.uint8(1))
    columns[c, Col.ENTRIES] = n + 1
    return True


@helper
def put_null(columns, c):  # type: ignore[no-untyped-def]
    """A null, in this column alone: a null struct needs one in each of its fields too (`ColumnTree.under`)."""
    n = columns[c, Col.ENTRIES]
    if n >= columns[c, Col.ROOM]:
        return False
    store_u8(columns[c, Col.VALID], n, np.uint8(0))
    width = columns[c, Col.WIDTH]
    if width == 8:
        store_i64(columns[c, Col.DATA], n, np.int64(0))
    elif width == 4:
        store_i32(columns[c, Col.DATA], n, np.int32(0))
    elif width == 16:
        store_i64(columns[c, Col.DATA], 2 * n, np.int64(0))
        store_i64(columns[c, Col.DATA], 2 * n + 1, np.int64(0))
    elif width == 1:
        store_u8(columns[c, Col.DATA], n, np.uint8(0))
    elif columns[c, Col.OFFSETS] != 0:
        child = columns[c, Col.CHILD]
        end = columns[child, Col.ENTRIES] if child > 0 else columns[c, Col.BYTES]
        store_i32(columns[c, Col.OFFSETS], n + 1, np.int32(end))
    columns[c, Col.ENTRIES] = n + 1
    return True


@helper
def put_nulls(columns, lists, start, end):  # type: ignore[no-untyped-def]
    """Put a null into each of the columns lists[start:end]; returns the result (0 or `full`)."""
    for at in range(start, end):
        if not put_null(columns, lists[at]):
            return full(lists[at])
    return np.int64(0)


class Mark(IntEnum):
    """Columns of `marks`, int64[n, len(Mark)]: how far each column was filled before a value."""

    ENTRIES = 0
    BYTES = 1


@helper
def mark(columns, marks):  # type: ignore[no-untyped-def]
    """Note where the columns end."""
    for c in range(len(columns)):
        marks[c, Mark.ENTRIES], marks[c, Mark.BYTES] = columns[c, Col.ENTRIES], columns[c, Col.BYTES]


@helper
def back_to(columns, marks):  # type: ignore[no-untyped-def]
    """Drop what was put since `mark`."""
    for c in range(len(columns)):
        columns[c, Col.ENTRIES], columns[c, Col.BYTES] = marks[c, Mark.ENTRIES], marks[c, Mark.BYTES]


class Room(IntEnum):
    """Entries of `missing`, int64[len(Room)]: for which column a kernel stopped."""

    COLUMN = 0  # -1: for none
    OF_ENTRIES = 1  # 1: it is full of entries, 0: of bytes


@helper
def note_full(columns, result, missing):  # type: ignore[no-untyped-def]
    """Note in `missing` which column a step that returned `full` had no room in."""
    column = full(result)
    missing[Room.COLUMN] = column
    missing[Room.OF_ENTRIES] = columns[column, Col.ENTRIES] >= columns[column, Col.ROOM]


@helper
def has_key_twice(columns, key, start):  # type: ignore[no-untyped-def]
    """True if two of the entries from `start` on of a column of strings or binaries are equal; also where there are too
    many to compare each with each: then somebody else has to look."""
    end = columns[key, Col.ENTRIES]
    if end - start > 16:
        return True
    offsets, data = columns[key, Col.OFFSETS], columns[key, Col.DATA]
    for a in range(start + 1, end):
        a_at = np.int64(int32_at(offsets, a)) if a > 0 else np.int64(0)
        size = np.int64(int32_at(offsets, a + 1)) - a_at
        for b in range(start, a):
            b_at = np.int64(int32_at(offsets, b)) if b > 0 else np.int64(0)
            if np.int64(int32_at(offsets, b + 1)) - b_at != size:
                continue
            same = True
            for i in range(size):
                if byte_at(data, a_at + i) != byte_at(data, b_at + i):
                    same = False
                    break
            if same:
                return True
    return False
