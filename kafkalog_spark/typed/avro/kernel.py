"""The kernel that decodes Avro: it runs a program (`program.py`) over every value of a batch.

What is read follows Java's BinaryDecoder (Avro 1.12): an int has at most five bytes, a long ten, any byte but 1 is
false, bytes after the value count for nothing. A value that does not hold what it should is bad, and leaves nothing.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from kafkalog_spark.kernels.primitives import kernel, varint, varint32
from kafkalog_spark.typed.avro.number_kernel import FULL, GOOD, keep_decimal, keep_number
from kafkalog_spark.typed.avro.program import As, Fault, Op
from kafkalog_spark.typed.columns.column_builder_kernel import (
    CHILD,
    ENTRIES,
    REPEATS,
    ROOM,
    back_to,
    has_key_twice,
    load_f32,
    load_f64,
    mark,
    put_bool,
    put_bytes,
    put_f32,
    put_f64,
    put_i32,
    put_i64,
    put_i128,
    put_list,
    put_nulls,
    put_struct,
)

MOST_EMPTIES = 65_536
"""Elements that take no bytes (nulls, records without fields), a value: a count of them costs nothing to write."""
STACK = 4096
"""Loops and calls inside each other. Java's own stack ends at some thousands as well."""

(
    _END, _BOOLEAN, _INT, _LONG, _FLOAT, _DOUBLE, _BYTES, _FIXED, _DECIMAL, _ENUM, _UNION, _JUMP, _NULLABLE, _STRUCT,
    _NULLS, _ARRAY, _NEXT, _CONST_BOOLEAN, _CONST_I32, _CONST_I64, _CONST_F32, _CONST_F64, _CONST_DECIMAL, _CONST_BYTES,
    _LIST, _CALL, _RETURN, _REFUSED, _SKIP_BYTES, _SKIP_FIXED, _SKIP_INT, _SKIP_LONG, _SKIP_ARRAY, _SKIP_NEXT,
) = (int(op) for op in Op)  # fmt: skip
_F32 = int(As.F32)
(
    _TRUNCATED, _NUMBER, _LENGTH, _COUNT, _BRANCH, _SYMBOL, _NO_PLACE, _DIGITS, _TIMESTAMP, _EMPTIES, _DEPTH, _SIZE,
    _NO_PROGRAM,
) = (int(fault) for fault in Fault)  # fmt: skip


@njit
def _noted(faults, i):  # type: ignore[no-untyped-def]
    """What is known of a value before it is read, as int64."""
    return np.int64(faults[i])


@njit
def _next_block(data, at, end):  # type: ignore[no-untyped-def]
    """The head of a block of elements -> (count, position after it); (-1, at) where it is none. A count below 0 is
    followed by the block's bytes, which count for nothing here."""
    count, at = varint(data, at, end)
    if at > end:
        return np.int64(-1), at
    if count < 0:
        _, at = varint(data, at, end)
        count = -count
        if at > end or count < 0:
            return np.int64(-1), at
    return count, at


@kernel
def decode_avro(  # type: ignore[no-untyped-def]
    data, starts, ends, entries, first, rows, tables, texts, root, columns, marks, stack, faults, places, steps, full
):
    """Decode the values data[starts[i]:ends[i]] from value `first` on; the value at which it stopped, or their number.

    data uint8[:]; starts, ends int64[n], end -1: there is no value, and the row is null. entries int64[n]: the row of
    `rows` at which a value's program begins; -1: bad by what it has in faults[i] already. root int64[2]: the list (in
    tables) of the columns that a null row fills. marks int64[columns, 2], stack int64[STACK, 3]: room to work in.
    faults uint8[n]: 0, or why a value is bad (Fault); places, steps int64[n]: where in the value, and at which row.
    full int64[2]: -1, or the column that must grow before it goes on with the value that is returned; and whether it is
    full of entries, 1, or of bytes, 0.
    """
    n = len(starts)
    root_start, root_end = root[0], root[1]
    full[0] = -1
    for i in range(first, n):
        if ends[i] < 0:
            put_nulls(columns, tables, root_start, root_end)
            continue
        mark(columns, marks)
        at, end = starts[i], ends[i]
        pc = entries[i]
        fault = GOOD
        depth = 0
        empties = 0
        if pc < 0:
            fault = _noted(faults, i)
            pc = 0
        last = pc
        while fault == GOOD:
            op, c = rows[pc, 0], rows[pc, 1]
            last = pc
            pc += 1
            if op in (_BYTES, _SKIP_BYTES):
                size, at = varint(data, at, end)
                if at > end:
                    fault = _NUMBER
                elif size < 0 or size > end - at:
                    fault = _LENGTH
                else:
                    if op == _BYTES and c >= 0 and not put_bytes(columns, c, data, at, size):
                        full[0] = c
                        break
                    at += size
            elif op in (_LONG, _INT):
                if at < end and data[at] < 128:
                    byte = np.int64(data[at])
                    value = (byte >> 1) ^ -(byte & 1)
                    at += 1
                elif op == _LONG:
                    value, at = varint(data, at, end)
                else:
                    value, at = varint32(data, at, end)
                if at > end:
                    fault = _NUMBER
                else:
                    fault = keep_number(columns, c, value, rows[pc - 1, 2])
                    if fault == FULL:
                        full[0] = c
                        break
            elif op == _NULLABLE:
                value, at = varint32(data, at, end)
                if at > end:
                    fault = _NUMBER
                elif value == rows[last, 1]:
                    left = put_nulls(columns, tables, rows[last, 3], rows[last, 4])
                    if left >= 0:
                        full[0] = left
                        break
                    pc = rows[last, 2]
                elif value < 0 or value > 1:
                    fault = _BRANCH
            elif op == _STRUCT:
                if not put_struct(columns, c):
                    full[0] = c
                    break
            elif op == _DOUBLE:
                if end - at < 8:
                    fault = _TRUNCATED
                else:
                    if c >= 0 and not put_f64(columns, c, load_f64(data, at)):
                        full[0] = c
                        break
                    at += 8
            elif op == _END:
                break
            elif op == _FLOAT:
                if end - at < 4:
                    fault = _TRUNCATED
                else:
                    small = load_f32(data, at)
                    at += 4
                    fits = True
                    if c >= 0:
                        if rows[last, 2] == _F32:
                            fits = put_f32(columns, c, small)
                        else:
                            fits = put_f64(columns, c, np.float64(small))
                    if not fits:
                        full[0] = c
                        break
            elif op == _BOOLEAN:
                if at >= end:
                    fault = _TRUNCATED
                else:
                    if c >= 0 and not put_bool(columns, c, data[at] == 1):
                        full[0] = c
                        break
                    at += 1
            elif op in (_FIXED, _SKIP_FIXED):
                size = rows[last, 2]
                if end - at < size:
                    fault = _TRUNCATED
                else:
                    if op == _FIXED and c >= 0 and not put_bytes(columns, c, data, at, size):
                        full[0] = c
                        break
                    at += size
            elif op == _DECIMAL:
                size = rows[last, 3]
                if size < 0:
                    size, at = varint(data, at, end)
                if at > end:
                    fault = _NUMBER
                elif size < 0 or size > end - at:
                    fault = _LENGTH
                else:
                    fault = keep_decimal(columns, c, data, at, size, rows[last, 2])
                    if fault == FULL:
                        full[0] = c
                        break
                    at += size
            elif op == _ENUM:
                value, at = varint32(data, at, end)
                if at > end:
                    fault = _NUMBER
                elif value < 0 or value >= rows[last, 3] or tables[rows[last, 2] + 2 * value] < 0:
                    fault = _SYMBOL
                elif c >= 0:
                    symbol = rows[last, 2] + 2 * value
                    if not put_bytes(columns, c, texts, tables[symbol], tables[symbol + 1]):
                        full[0] = c
                        break
            elif op == _UNION:
                value, at = varint32(data, at, end)
                if at > end:
                    fault = _NUMBER
                elif value < 0 or value >= rows[last, 1]:
                    fault = _BRANCH
                else:
                    pc = tables[rows[last, 2] + value]
            elif op == _JUMP:
                pc = c
            elif op == _NULLS:
                left = put_nulls(columns, tables, rows[last, 1], rows[last, 2])
                if left >= 0:
                    full[0] = left
                    break
            elif op == _ARRAY:
                if depth >= STACK:
                    fault = _DEPTH
                else:
                    count, at = _next_block(data, at, end)
                    if count < 0:
                        fault = _COUNT
                    else:
                        # As if an element before the first were complete: NEXT goes on from there.
                        stack[depth, 0] = count + 1
                        stack[depth, 1] = -1
                        stack[depth, 2] = columns[columns[c, CHILD], ENTRIES] if c >= 0 else 0
                        if count == 0:
                            stack[depth, 0] = 0
                        depth += 1
                        pc = rows[last, 2]
            elif op == _NEXT:
                top = depth - 1
                if stack[top, 0] > 0:
                    stack[top, 0] -= 1
                    if stack[top, 1] == at:
                        empties += 1
                        if empties > MOST_EMPTIES:
                            fault = _EMPTIES
                    stack[top, 1] = at
                    if stack[top, 0] == 0 and fault == GOOD:
                        count, at = _next_block(data, at, end)
                        if count < 0:
                            fault = _COUNT
                        stack[top, 0] = count
                        stack[top, 1] = at
                if fault == GOOD:
                    if stack[top, 0] > 0:
                        pc = rows[last, 2]
                    else:
                        depth = top
                        if c >= 0:
                            key = rows[last, 3]
                            if key >= 0 and has_key_twice(columns, key, stack[top, 2]):
                                columns[c, REPEATS] = 1
                            if not put_list(columns, c):
                                full[0] = c
                                break
            elif op >= _CONST_BOOLEAN and op <= _LIST:
                if op == _CONST_BOOLEAN:
                    fits = put_bool(columns, c, rows[last, 2])
                elif op == _CONST_I32:
                    fits = put_i32(columns, c, rows[last, 2])
                elif op == _CONST_I64:
                    fits = put_i64(columns, c, rows[last, 2])
                elif op == _CONST_F32:
                    fits = put_f32(columns, c, np.float32(load_f64(texts, rows[last, 2])))
                elif op == _CONST_F64:
                    fits = put_f64(columns, c, load_f64(texts, rows[last, 2]))
                elif op == _CONST_DECIMAL:
                    fits = put_i128(columns, c, rows[last, 2], rows[last, 3])
                elif op == _CONST_BYTES:
                    fits = put_bytes(columns, c, texts, rows[last, 2], rows[last, 3])
                else:
                    fits = put_list(columns, c)
                if not fits:
                    full[0] = c
                    break
            elif op == _CALL:
                if depth >= STACK:
                    fault = _DEPTH
                else:
                    stack[depth, 0] = pc
                    stack[depth, 1] = at
                    depth += 1
                    pc = c
            elif op == _RETURN:
                depth -= 1
                pc = stack[depth, 0]
                if at == stack[depth, 1]:  # a record of no bytes: types that name each other make 2^40 of them
                    empties += 1
                    if empties > MOST_EMPTIES:
                        fault = _EMPTIES
            elif op == _REFUSED:
                fault = _NO_PLACE
            elif op in (_SKIP_INT, _SKIP_LONG):
                if op == _SKIP_INT:
                    _, at = varint32(data, at, end)
                else:
                    _, at = varint(data, at, end)
                if at > end:
                    fault = _NUMBER
            elif op == _SKIP_ARRAY:
                if depth >= STACK:
                    fault = _DEPTH
                else:
                    stack[depth, 0] = 0
                    stack[depth, 1] = -1
                    depth += 1
                    pc = rows[last, 2]
            elif op == _SKIP_NEXT:
                top = depth - 1
                if stack[top, 0] > 0:
                    stack[top, 0] -= 1
                    if stack[top, 1] == at:
                        empties += 1
                        if empties > MOST_EMPTIES:
                            fault = _EMPTIES
                    stack[top, 1] = at
                while fault == GOOD and stack[top, 0] == 0:
                    count, at = varint(data, at, end)
                    if at > end:
                        fault = _NUMBER
                    elif count == 0:
                        break
                    elif count > 0:
                        stack[top, 0] = count
                        stack[top, 1] = at
                    else:  # blocks that say how long they are
                        size, at = varint(data, at, end)
                        if at > end:
                            fault = _NUMBER
                        elif size < 0 or size > end - at:
                            fault = _LENGTH
                        else:
                            at += size
                if fault == GOOD:
                    if stack[top, 0] > 0:
                        pc = rows[last, 2]
                    else:
                        depth = top
        if full[0] >= 0:
            full[1] = columns[full[0], ENTRIES] >= columns[full[0], ROOM]
            back_to(columns, marks)
            return i
        if fault != GOOD:
            back_to(columns, marks)
            put_struct(columns, 0)  # columns of the root's fields have room for every value
            put_nulls(columns, tables, root_start + 1, root_end)
            faults[i] = fault
            places[i] = min(at, end) - starts[i]
            steps[i] = last
    return n
