"""Appending of entries to columns from compiled code.

A kernel gets all columns as one table, `columns` int64[n, len(Col)], with the addresses of their buffers, so it is not
compiled for every schema. A `put_...` function returns whether the entry fits. If it does not, the kernel returns, its
caller grows the column (`ColumnBuffers.grow`), and the kernel decodes the value again from its beginning.

The result of a decoding step is an int64: 0, a fault (above 0), or `full(column)` (below 0).
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

MAX_INT32 = 2**31 - 1
MAX_COMPARED_KEYS = 16  # a larger map is checked for duplicate keys after the batch, without comparing all pairs


class Col(IntEnum):
    """Fields of a column's row in the table."""

    ENTRIES = 0  # number of entries
    ROOM = 1  # capacity in entries
    VALID = 2  # address of uint8[ROOM], 0 for null
    DATA = 3  # address of the entries of fixed width, or of the bytes of strings
    WIDTH = 4  # bytes of an entry of fixed width; 0 for structs, nulls, and types of variable width
    OFFSETS = 5  # address of int32[ROOM + 1] for strings, binaries, lists and maps; otherwise 0
    BYTES = 6  # strings and binaries: number of bytes
    BYTES_ROOM = 7  # strings and binaries: capacity in bytes
    CHILD = 8  # lists: column of the elements; maps: column of the entries, a struct
    MAY_REPEAT_KEYS = 9  # maps: 1 if a map may have a key twice


class Mark(IntEnum):
    """Columns of `marks`, int64[n, len(Mark)]: the end of each column before a value."""

    ENTRIES = 0
    BYTES = 1


class FullColumn(IntEnum):
    """Entries of `full_column`, int64[len(FullColumn)]: the column that made a kernel return early."""

    COLUMN = 0  # -1 if no column is full
    LACKS_ENTRIES = 1  # 1 if it has no room for entries, 0 if it has none for bytes


def _store(kind: Any, bits: Any) -> Any:
    """Return an intrinsic (address, index, value) that sets element `index` of the array of `kind` at `address`."""

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
    """Copy source[source_at:source_at + count], uint8[:], to address + at."""
    signature = types.void(types.int64, types.int64, source, types.int64, types.int64)

    def generate(context, builder, sig, args):  # type: ignore[no-untyped-def]
        to = builder.gep(builder.inttoptr(args[0], ir.IntType(8).as_pointer()), [args[1]])
        cgutils.raw_memcpy(builder, to, byte_pointer(context, builder, sig.args[2], args[2], args[3]), args[4], 1)
        return context.get_dummy_value()

    return signature, generate


def _element(kind: Any, bits: Any) -> Any:
    """Return an intrinsic (address, index) that gives element `index` of the array of `kind` at `address`."""

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
    """Return the result of a step that found a column full. It is its own inverse: full(full(column)) == column."""
    return -1 - column


def _put(store: Any, kind: Any) -> Any:
    """Return a function that appends a number to a column of fixed width."""

    @inlined
    def put(columns, column, value):  # type: ignore[no-untyped-def]
        n = columns[column, Col.ENTRIES]
        if n >= columns[column, Col.ROOM]:
            return False
        store(columns[column, Col.DATA], n, kind(value))
        store_u8(columns[column, Col.VALID], n, np.uint8(1))
        columns[column, Col.ENTRIES] = n + 1
        return True

    return put


put_i32, put_i64 = _put(store_i32, np.int32), _put(store_i64, np.int64)
put_f32, put_f64 = _put(store_f32, np.float32), _put(store_f64, np.float64)
put_bool = _put(store_u8, np.uint8)
"""Append a boolean as one byte. The bytes become bits when the column is finished."""


@inlined
def put_i128(columns, column, low, high):  # type: ignore[no-untyped-def]
    """Append the low and the high 64 bits of a decimal's unscaled value."""
    n = columns[column, Col.ENTRIES]
    if n >= columns[column, Col.ROOM]:
        return False
    store_i64(columns[column, Col.DATA], 2 * n, np.int64(low))
    store_i64(columns[column, Col.DATA], 2 * n + 1, np.int64(high))
    store_u8(columns[column, Col.VALID], n, np.uint8(1))
    columns[column, Col.ENTRIES] = n + 1
    return True


@inlined
def put_bytes(columns, column, source, at, count):  # type: ignore[no-untyped-def]
    """Append source[at:at + count], uint8[:], to a string or binary column."""
    n = columns[column, Col.ENTRIES]
    used = columns[column, Col.BYTES]
    if n >= columns[column, Col.ROOM] or used + count > columns[column, Col.BYTES_ROOM]:
        return False
    copy_to(columns[column, Col.DATA], used, source, at, count)
    store_i32(columns[column, Col.OFFSETS], n + 1, np.int32(used + count))
    columns[column, Col.BYTES] = used + count
    store_u8(columns[column, Col.VALID], n, np.uint8(1))
    columns[column, Col.ENTRIES] = n + 1
    return True


@inlined
def put_struct(columns, column):  # type: ignore[no-untyped-def]
    """Append a struct that is not null. The caller appends one entry to each of its fields."""
    n = columns[column, Col.ENTRIES]
    if n >= columns[column, Col.ROOM]:
        return False
    store_u8(columns[column, Col.VALID], n, np.uint8(1))
    columns[column, Col.ENTRIES] = n + 1
    return True


@helper
def put_list(columns, column):  # type: ignore[no-untyped-def]
    """Append a list or map. Its elements are the entries of the child column since the previous list."""
    n = columns[column, Col.ENTRIES]
    if n >= columns[column, Col.ROOM]:
        return False
    store_i32(columns[column, Col.OFFSETS], n + 1, np.int32(columns[columns[column, Col.CHILD], Col.ENTRIES]))
    store_u8(columns[column, Col.VALID], n, np.uint8(1))
    columns[column, Col.ENTRIES] = n + 1
    return True


@helper
def put_null(columns, column):  # type: ignore[no-untyped-def]
    """Append a null to this column alone. A null struct also needs a null in each of its fields (`null_columns`)."""
    n = columns[column, Col.ENTRIES]
    if n >= columns[column, Col.ROOM]:
        return False
    store_u8(columns[column, Col.VALID], n, np.uint8(0))
    width = columns[column, Col.WIDTH]
    if width == 8:
        store_i64(columns[column, Col.DATA], n, np.int64(0))
    elif width == 4:
        store_i32(columns[column, Col.DATA], n, np.int32(0))
    elif width == 16:
        store_i64(columns[column, Col.DATA], 2 * n, np.int64(0))
        store_i64(columns[column, Col.DATA], 2 * n + 1, np.int64(0))
    elif width == 1:
        store_u8(columns[column, Col.DATA], n, np.uint8(0))
    elif columns[column, Col.OFFSETS] != 0:
        child = columns[column, Col.CHILD]
        end = columns[child, Col.ENTRIES] if child > 0 else columns[column, Col.BYTES]
        store_i32(columns[column, Col.OFFSETS], n + 1, np.int32(end))
    columns[column, Col.ENTRIES] = n + 1
    return True


@helper
def put_nulls(columns, tables, start, end):  # type: ignore[no-untyped-def]
    """Append a null to each of the columns tables[start:end], int64[:]; return the result (0 or `full`)."""
    for i in range(start, end):
        if not put_null(columns, tables[i]):
            return full(tables[i])
    return np.int64(0)


@helper
def mark(columns, marks):  # type: ignore[no-untyped-def]
    """Save the ends of all columns in `marks`, int64[n, len(Mark)]."""
    for column in range(len(columns)):
        marks[column, Mark.ENTRIES], marks[column, Mark.BYTES] = (
            columns[column, Col.ENTRIES],
            columns[column, Col.BYTES],
        )


@helper
def restore(columns, marks):  # type: ignore[no-untyped-def]
    """Remove all entries that were appended since `mark`."""
    for column in range(len(columns)):
        columns[column, Col.ENTRIES], columns[column, Col.BYTES] = (
            marks[column, Mark.ENTRIES],
            marks[column, Mark.BYTES],
        )


@helper
def note_full(columns, result, full_column):  # type: ignore[no-untyped-def]
    """Record in `full_column` the column of the result `full(column)`."""
    column = full(result)
    full_column[FullColumn.COLUMN] = column
    full_column[FullColumn.LACKS_ENTRIES] = columns[column, Col.ENTRIES] >= columns[column, Col.ROOM]


@helper
def may_have_duplicate_keys(columns, key, start):  # type: ignore[no-untyped-def]
    """Return whether two entries at or after `start` of a string or binary column may be equal.

    With more than MAX_COMPARED_KEYS entries the answer is True without a comparison of every pair.
    """
    end = columns[key, Col.ENTRIES]
    if end - start > MAX_COMPARED_KEYS:
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
