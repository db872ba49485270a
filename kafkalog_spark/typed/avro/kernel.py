"""The kernel that decodes Avro: it runs a program (`program.py`) over every value of a batch.

What is read follows Java's BinaryDecoder (Avro 1.12): an int has at most five bytes, a long ten, any byte but 1 is
false, bytes after the value are ignored. A malformed value leaves nothing in the columns.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from kafkalog_spark.kernels.primitives import helper, inlined, kernel, load_f32, load_f64, varint, varint32
from kafkalog_spark.typed.avro.program import As, AvroFault, Op, Word
from kafkalog_spark.typed.columns import column_builder_kernel as builder

MOST_EMPTIES = 65_536
"""Elements that take no bytes (nulls, records without fields), a value: a count of them costs nothing to write."""
STACK = 4096  # loops and calls inside each other. Java's own stack ends at some thousands as well.

_MOST_MILLIS = (2**63 - 1) // 1000
_POWERS = np.array([10**i for i in range(19)], np.int64)
_POWERS_LOW = np.array([10**i & (2**64 - 1) for i in range(39)], np.uint64)
_POWERS_HIGH = np.array([10**i >> 64 for i in range(39)], np.uint64)


class Loop(IntEnum):
    """Columns of the stack, int64[STACK, len(Loop)], for an array or map."""

    LEFT = 0  # elements left of the block
    AT = 1  # position of the element before; -1: there is none
    FIRST = 2  # entries of the child column before the first element


class Call(IntEnum):
    """Columns of the stack for a record that is called."""

    RETURN = 0  # the row to go on with
    AT = 1  # position of its first byte


@helper
def _keep_number(columns, c, value, kept):  # type: ignore[no-untyped-def]
    """Put an int64 into column c (below 0: into none) as `kept` (As) says; returns the result."""
    if kept == As.MILLIS:
        if value > _MOST_MILLIS or value < -_MOST_MILLIS:
            return AvroFault.TIMESTAMP
        value *= 1000
    if c < 0:
        return AvroFault.NONE
    if kept == As.I32:
        fits = builder.put_i32(columns, c, value)
    elif kept in (As.I64, As.MILLIS):
        fits = builder.put_i64(columns, c, value)
    elif kept == As.F32:
        fits = builder.put_f32(columns, c, np.float32(value))
    elif kept == As.F64:
        fits = builder.put_f64(columns, c, np.float64(value))
    else:
        fits = builder.put_f64(columns, c, np.float64(np.float32(value)))
    return AvroFault.NONE if fits else builder.full(c)


@helper
def _keep_decimal(columns, c, data, at, size, precision):  # type: ignore[no-untyped-def]
    """Put the big-endian two's complement number data[at:at + size] into a column; returns the result. As Spark: up to
    18 digits only the low 64 bits count; with more, all do."""
    if size == 0:
        return AvroFault.DECIMAL
    filler = np.uint64(0xFFFFFFFFFFFFFFFF) if data[at] & np.uint8(0x80) else np.uint64(0)
    low, high = filler, filler
    for i in range(max(at, at + size - 16), at + size):
        high = (high << np.uint64(8)) | (low >> np.uint64(56))
        low = (low << np.uint64(8)) | np.uint64(data[i])
    if precision <= 18:
        value = np.int64(low)
        if value <= -_POWERS[precision] or value >= _POWERS[precision]:
            return AvroFault.DECIMAL
        if c >= 0 and not builder.put_i128(columns, c, value, value >> 63):
            return builder.full(c)
        return AvroFault.NONE
    for i in range(at, at + size - 16):
        if np.uint64(data[i]) != filler & np.uint64(0xFF):
            return AvroFault.DECIMAL
    negative = filler != np.uint64(0)
    if (np.int64(high) < 0) != negative:  # its sign does not fit into 128 bits
        return AvroFault.DECIMAL
    of_low, of_high = low, high
    if negative:
        of_low = ~low + np.uint64(1)
        of_high = ~high + (np.uint64(1) if of_low == np.uint64(0) else np.uint64(0))
    if of_high > _POWERS_HIGH[precision] or (of_high == _POWERS_HIGH[precision] and of_low >= _POWERS_LOW[precision]):
        return AvroFault.DECIMAL
    if c >= 0 and not builder.put_i128(columns, c, np.int64(low), np.int64(high)):
        return builder.full(c)
    return AvroFault.NONE


@inlined
def _length(data, at, end):  # type: ignore[no-untyped-def]
    """The length of bytes that follow -> (fault, length, position after it)."""
    size, at = varint(data, at, end)
    if at > end:
        return np.int64(AvroFault.NUMBER), size, at
    return np.int64(AvroFault.LENGTH if size < 0 or size > end - at else AvroFault.NONE), size, at


@inlined
def _read_bytes(c, data, at, end, columns):  # type: ignore[no-untyped-def]
    """A length and as many bytes -> (result, position after them)."""
    fault, size, at = _length(data, at, end)
    if fault != AvroFault.NONE:
        return fault, at
    if c >= 0 and not builder.put_bytes(columns, c, data, at, size):
        return builder.full(c), at
    return np.int64(AvroFault.NONE), at + size


@inlined
def _read_fixed(c, size, data, at, end, columns):  # type: ignore[no-untyped-def]
    """As many bytes as the schema says -> (result, position after them)."""
    if end - at < size:
        return np.int64(AvroFault.TRUNCATED), at
    if c >= 0 and not builder.put_bytes(columns, c, data, at, size):
        return builder.full(c), at
    return np.int64(AvroFault.NONE), at + size


@inlined
def _read_whole(op, c, kept, data, at, end, columns):  # type: ignore[no-untyped-def]
    """An int or a long, kept as `kept` (As) -> (result, position after it)."""
    if at < end and data[at] < 128:
        byte = np.int64(data[at])
        value = (byte >> 1) ^ -(byte & 1)
        at += 1
    elif op == Op.LONG:
        value, at = varint(data, at, end)
    else:
        value, at = varint32(data, at, end)
    if at > end:
        return np.int64(AvroFault.NUMBER), at
    return _keep_number(columns, c, value, kept), at


@inlined
def _read_double(c, data, at, end, columns):  # type: ignore[no-untyped-def]
    if end - at < 8:
        return np.int64(AvroFault.TRUNCATED), at
    if c >= 0 and not builder.put_f64(columns, c, load_f64(data, at)):
        return builder.full(c), at
    return np.int64(AvroFault.NONE), at + 8


@inlined
def _read_float(c, kept, data, at, end, columns):  # type: ignore[no-untyped-def]
    if end - at < 4:
        return np.int64(AvroFault.TRUNCATED), at
    fits = True
    if c >= 0:
        small = load_f32(data, at)
        fits = builder.put_f32(columns, c, small) if kept == As.F32 else builder.put_f64(columns, c, np.float64(small))
    return (np.int64(AvroFault.NONE) if fits else builder.full(c)), at + 4


@inlined
def _read_boolean(c, data, at, end, columns):  # type: ignore[no-untyped-def]
    if at >= end:
        return np.int64(AvroFault.TRUNCATED), at
    if c >= 0 and not builder.put_bool(columns, c, data[at] == 1):
        return builder.full(c), at
    return np.int64(AvroFault.NONE), at + 1


@inlined
def _read_decimal(c, precision, size, data, at, end, columns):  # type: ignore[no-untyped-def]
    """A decimal of `size` bytes, or below 0 of as many as its length says -> (result, position after it)."""
    if size < 0:
        fault, size, at = _length(data, at, end)
        if fault != AvroFault.NONE:
            return fault, at
    elif size > end - at:
        return np.int64(AvroFault.LENGTH), at
    result = _keep_decimal(columns, c, data, at, size, precision)
    return result, (at + size if result == AvroFault.NONE else at)


@inlined
def _read_enum(instruction, program, data, at, end, columns):  # type: ignore[no-untyped-def]
    """An enum's symbol -> (result, position after it)."""
    c, symbols = instruction[Word.A], instruction[Word.B]
    value, at = varint32(data, at, end)
    if at > end:
        return np.int64(AvroFault.NUMBER), at
    if value < 0 or value >= instruction[Word.C] or program.tables[symbols + 2 * value] < 0:
        return np.int64(AvroFault.SYMBOL), at
    symbol = symbols + 2 * value
    if c >= 0 and not builder.put_bytes(columns, c, program.texts, program.tables[symbol], program.tables[symbol + 1]):
        return builder.full(c), at
    return np.int64(AvroFault.NONE), at


@inlined
def _nullable(pc, instruction, tables, data, at, end, columns):  # type: ignore[no-untyped-def]
    """A union of null and one other branch -> (result, position after its index, row to go on with)."""
    value, at = varint32(data, at, end)
    if at > end:
        return np.int64(AvroFault.NUMBER), at, pc
    if value == instruction[Word.A]:
        return builder.put_nulls(columns, tables, instruction[Word.C], instruction[Word.D]), at, instruction[Word.B]
    return np.int64(AvroFault.BRANCH if value < 0 or value > 1 else AvroFault.NONE), at, pc


@inlined
def _union(pc, instruction, tables, data, at, end):  # type: ignore[no-untyped-def]
    """A branch's index -> (fault, position after it, row to go on with)."""
    value, at = varint32(data, at, end)
    if at > end:
        return np.int64(AvroFault.NUMBER), at, pc
    if value < 0 or value >= instruction[Word.A]:
        return np.int64(AvroFault.BRANCH), at, pc
    return np.int64(AvroFault.NONE), at, tables[instruction[Word.B] + value]


@inlined
def _next_block(data, at, end):  # type: ignore[no-untyped-def]
    """The head of a block of elements -> (count, position after it); (-1, at) where it is none. A count below 0 is
    followed by the block's bytes, which are not needed here."""
    count, at = varint(data, at, end)
    if at > end:
        return np.int64(-1), at
    if count < 0:
        _, at = varint(data, at, end)
        count = -count
        if at > end or count < 0:
            return np.int64(-1), at
    return count, at


@inlined
def _begin_array(c, data, at, end, columns, stack, depth):  # type: ignore[no-untyped-def]
    """The head of an array or map -> (fault, position after it)."""
    if depth >= STACK:
        return np.int64(AvroFault.DEPTH), at
    count, at = _next_block(data, at, end)
    if count < 0:
        return np.int64(AvroFault.COUNT), at
    # As if an element before the first were complete: NEXT goes on from there.
    stack[depth, Loop.LEFT] = count + 1 if count > 0 else 0
    stack[depth, Loop.AT] = -1
    stack[depth, Loop.FIRST] = columns[columns[c, builder.Col.CHILD], builder.Col.ENTRIES] if c >= 0 else 0
    return np.int64(AvroFault.NONE), at


@inlined
def _end_element(stack, top, at, empties):  # type: ignore[no-untyped-def]
    """Count off the element that ends at `at` -> (fault, empty elements so far)."""
    stack[top, Loop.LEFT] -= 1
    if stack[top, Loop.AT] == at:
        empties += 1
    stack[top, Loop.AT] = at
    return np.int64(AvroFault.EMPTIES if empties > MOST_EMPTIES else AvroFault.NONE), empties


@inlined
def _next_element(stack, top, data, at, end, empties):  # type: ignore[no-untyped-def]
    """Go on with the next element or block, if there is one -> (fault, position, empty elements so far)."""
    fault = np.int64(AvroFault.NONE)
    if stack[top, Loop.LEFT] > 0:
        fault, empties = _end_element(stack, top, at, empties)
        if stack[top, Loop.LEFT] == 0 and fault == AvroFault.NONE:
            count, at = _next_block(data, at, end)
            if count < 0:
                fault = np.int64(AvroFault.COUNT)
            stack[top, Loop.LEFT], stack[top, Loop.AT] = count, at
    return fault, at, empties


@inlined
def _skip_element(stack, top, data, at, end, empties):  # type: ignore[no-untyped-def]
    """As `_next_element`, over blocks as a whole where they say how long they are."""
    fault = np.int64(AvroFault.NONE)
    if stack[top, Loop.LEFT] > 0:
        fault, empties = _end_element(stack, top, at, empties)
    while fault == AvroFault.NONE and stack[top, Loop.LEFT] == 0:
        count, at = varint(data, at, end)
        if at > end:
            fault = np.int64(AvroFault.NUMBER)
        elif count == 0:
            break
        elif count > 0:
            stack[top, Loop.LEFT], stack[top, Loop.AT] = count, at
        else:
            fault, size, at = _length(data, at, end)
            if fault == AvroFault.NONE:
                at += size
    return fault, at, empties


@inlined
def _put_elements(c, key, first, columns):  # type: ignore[no-untyped-def]
    """The list or map whose elements, from entry `first` of the child on, are complete. key: a map's key column."""
    if c < 0:
        return np.int64(AvroFault.NONE)
    if key >= 0 and builder.may_have_duplicate_keys(columns, key, first):
        columns[c, builder.Col.MAY_REPEAT_KEYS] = 1
    return np.int64(AvroFault.NONE) if builder.put_list(columns, c) else builder.full(c)


@inlined
def _run(value, at, value_end, pc, program, columns, stack):  # type: ignore[no-untyped-def]
    """Run the program from row `pc` on over value[at:value_end] -> (result, position, row where it stopped)."""
    rows, tables = program.rows, program.tables
    data, end, resume = value, value_end, np.int64(-1)  # resume: position in the value while a default is read
    result = np.int64(AvroFault.NONE)
    depth, empties, last = 0, 0, pc
    while result == AvroFault.NONE:
        op, c = rows[pc, Word.OP], rows[pc, Word.A]
        instruction = rows[pc]
        last = pc
        pc += 1
        if op == Op.BYTES:
            result, at = _read_bytes(c, data, at, end, columns)
        elif op in (Op.LONG, Op.INT):
            result, at = _read_whole(op, c, instruction[Word.B], data, at, end, columns)
        elif op == Op.NULLABLE:
            result, at, pc = _nullable(pc, instruction, tables, data, at, end, columns)
        elif op == Op.STRUCT:
            if not builder.put_struct(columns, c):
                result = builder.full(c)
        elif op == Op.DOUBLE:
            result, at = _read_double(c, data, at, end, columns)
        elif op == Op.END:
            break
        elif op == Op.FLOAT:
            result, at = _read_float(c, instruction[Word.B], data, at, end, columns)
        elif op == Op.BOOLEAN:
            result, at = _read_boolean(c, data, at, end, columns)
        elif op == Op.FIXED:
            result, at = _read_fixed(c, instruction[Word.B], data, at, end, columns)
        elif op == Op.DECIMAL:
            result, at = _read_decimal(c, instruction[Word.B], instruction[Word.C], data, at, end, columns)
        elif op == Op.ENUM:
            result, at = _read_enum(instruction, program, data, at, end, columns)
        elif op == Op.UNION:
            result, at, pc = _union(pc, instruction, tables, data, at, end)
        elif op == Op.JUMP:
            pc = c
        elif op == Op.NULLS:
            result = builder.put_nulls(columns, tables, instruction[Word.A], instruction[Word.B])
        elif op == Op.ARRAY:
            result, at = _begin_array(c, data, at, end, columns, stack, depth)
            depth += 1
            pc = instruction[Word.B]
        elif op == Op.NEXT:
            result, at, empties = _next_element(stack, depth - 1, data, at, end, empties)
            if stack[depth - 1, Loop.LEFT] > 0:
                pc = instruction[Word.B]
            elif result == AvroFault.NONE:
                depth -= 1
                result = _put_elements(c, instruction[Word.C], stack[depth, Loop.FIRST], columns)
        elif op == Op.DEFAULT:
            resume = at
            data, at, end = program.texts, instruction[Word.A], instruction[Word.B]
        elif op == Op.RESUME:
            data, at, end, resume = value, resume, value_end, np.int64(-1)
        elif op in (Op.CALL, Op.SKIP_ARRAY):
            if depth >= STACK:
                result = np.int64(AvroFault.DEPTH)
            elif op == Op.CALL:
                stack[depth, Call.RETURN], stack[depth, Call.AT] = pc, at
                pc = c
            else:
                stack[depth, Loop.LEFT], stack[depth, Loop.AT] = 0, -1
                pc = instruction[Word.B]
            depth += 1
        elif op == Op.RETURN:
            depth -= 1
            pc = stack[depth, Call.RETURN]
            if at == stack[depth, Call.AT]:  # a record of no bytes: types that name each other make 2^40 of them
                empties += 1
                if empties > MOST_EMPTIES:
                    result = np.int64(AvroFault.EMPTIES)
        elif op == Op.REFUSED:
            result = np.int64(AvroFault.REFUSED)
        elif op == Op.SKIP_NEXT:
            result, at, empties = _skip_element(stack, depth - 1, data, at, end, empties)
            if stack[depth - 1, Loop.LEFT] > 0:
                pc = instruction[Word.B]
            else:
                depth -= 1
    return result, (at if resume < 0 else resume), last


@kernel
def decode_avro(values, entries, first, program, root, columns, marks, stack, faults, full_column):  # type: ignore[no-untyped-def]
    """Decode `values` (buffer_pool.Values) from number `first` on; returns the one at which it stopped, or their count.

    entries int64[n]: the row of the program (ProgramArrays) at which a value's begins; -1: malformed by what
    faults.codes has already. root: start and end, in the program's tables, of the columns that a null value
    fills. columns int64[m, len(Col)], marks int64[m, len(Mark)]. stack int64[STACK, len(Loop)]: room to work in.
    full_column int64[len(FullColumn)]: the column that must grow before it goes on with the value that is returned.
    """
    starts, ends = values.starts, values.ends
    root_start, root_end = root
    n = len(starts)
    full_column[builder.FullColumn.COLUMN] = -1
    for i in range(first, n):
        if ends[i] < 0:
            builder.put_nulls(columns, program.tables, root_start, root_end)
            continue
        builder.mark(columns, marks)
        if entries[i] < 0:
            result, at, last = np.int64(faults.codes[i]), starts[i], np.int64(0)
        else:
            result, at, last = _run(values.data, starts[i], ends[i], entries[i], program, columns, stack)
        if result < 0:
            builder.note_full(columns, result, full_column)
            builder.restore(columns, marks)
            return i
        if result != AvroFault.NONE:
            builder.restore(columns, marks)
            builder.put_struct(columns, 0)  # columns of the root's fields have room for every value
            builder.put_nulls(columns, program.tables, root_start + 1, root_end)
            faults.codes[i] = result
            faults.positions[i] = min(at, ends[i]) - starts[i]
            faults.steps[i] = last
    return n
