"""The kernel that decodes Avro: it runs a program (`program.py`) over each value of a batch.

It accepts what Java's BinaryDecoder (Avro 1.12) accepts: an int has at most five bytes, a long at most ten, every byte
except 1 is false, and bytes after the value are ignored. The row of a malformed value contains only nulls.

The functions share these arguments: `data` uint8[:] with the value in data[at:end], `columns` int64[n, len(Col)], and
`column`, the number of a column or -1 to store nothing. Unless they say otherwise, they return a result (see
column_builder_kernel) and the position after the bytes that they read.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from kafkalog_spark.kernels.primitives import helper, inlined, kernel, load_f32, load_f64, varint, varint32
from kafkalog_spark.typed.avro.program import AvroFault, Op, StoredAs, Word
from kafkalog_spark.typed.columns import column_builder_kernel as builder

MAX_EMPTY_ELEMENTS = 65_536
"""Limit on the elements of a value that take no bytes, such as nulls: a count of a few bytes can claim billions."""
STACK_SIZE = 4096  # frames of nested arrays, maps and calls; Java's stack overflows at a similar depth

_MAX_MILLIS = (2**63 - 1) // 1000
_POWERS = np.array([10**i for i in range(19)], np.int64)
_POWERS_LOW = np.array([10**i & (2**64 - 1) for i in range(39)], np.uint64)
_POWERS_HIGH = np.array([10**i >> 64 for i in range(39)], np.uint64)


class Loop(IntEnum):
    """Columns of the stack, int64[STACK_SIZE, len(Loop)], for the frame of an array or map."""

    LEFT = 0  # elements left in the block
    POSITION = 1  # position at which the current element began, or -1 before the first
    FIRST_ENTRY = 2  # number of entries of the child column before the first element


class Call(IntEnum):
    """Columns of the stack for the frame of a called routine."""

    RETURN = 0  # row at which the caller continues
    POSITION = 1  # position of the record's first byte


@helper
def _put_number(columns, column, value, stored_as):  # type: ignore[no-untyped-def]
    """Append an int64 in the representation `stored_as` (a StoredAs); return only the result."""
    if stored_as == StoredAs.MILLIS:
        if value > _MAX_MILLIS or value < -_MAX_MILLIS:
            return AvroFault.TIMESTAMP
        value *= 1000
    if column < 0:
        return AvroFault.NONE
    if stored_as == StoredAs.I32:
        fits = builder.put_i32(columns, column, value)
    elif stored_as in (StoredAs.I64, StoredAs.MILLIS):
        fits = builder.put_i64(columns, column, value)
    elif stored_as == StoredAs.F32:
        fits = builder.put_f32(columns, column, np.float32(value))
    elif stored_as == StoredAs.F64:
        fits = builder.put_f64(columns, column, np.float64(value))
    else:
        fits = builder.put_f64(columns, column, np.float64(np.float32(value)))
    return AvroFault.NONE if fits else builder.full(column)


@helper
def _put_decimal(columns, column, data, at, size, precision):  # type: ignore[no-untyped-def]
    """Append the big-endian two's complement number data[at:at + size]; return only the result.

    As in Spark, only the low 64 bits count if the precision is at most 18.
    """
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
        if column >= 0 and not builder.put_i128(columns, column, value, value >> 63):
            return builder.full(column)
        return AvroFault.NONE
    for i in range(at, at + size - 16):
        if np.uint64(data[i]) != filler & np.uint64(0xFF):
            return AvroFault.DECIMAL
    negative = filler != np.uint64(0)
    if (np.int64(high) < 0) != negative:  # the number does not fit into 128 bits
        return AvroFault.DECIMAL
    magnitude_low, magnitude_high = low, high
    if negative:
        magnitude_low = ~low + np.uint64(1)
        magnitude_high = ~high + (np.uint64(1) if magnitude_low == np.uint64(0) else np.uint64(0))
    if magnitude_high > _POWERS_HIGH[precision] or (
        magnitude_high == _POWERS_HIGH[precision] and magnitude_low >= _POWERS_LOW[precision]
    ):
        return AvroFault.DECIMAL
    if column >= 0 and not builder.put_i128(columns, column, np.int64(low), np.int64(high)):
        return builder.full(column)
    return AvroFault.NONE


@inlined
def _read_length(data, at, end):  # type: ignore[no-untyped-def]
    """Read a length, which at least as many bytes must follow -> (fault, length, position)."""
    size, at = varint(data, at, end)
    if at > end:
        return np.int64(AvroFault.NUMBER), size, at
    return np.int64(AvroFault.LENGTH if size < 0 or size > end - at else AvroFault.NONE), size, at


@inlined
def _read_bytes(column, data, at, end, columns):  # type: ignore[no-untyped-def]
    """Read a length and as many bytes -> (result, position)."""
    fault, size, at = _read_length(data, at, end)
    if fault != AvroFault.NONE:
        return fault, at
    if column >= 0 and not builder.put_bytes(columns, column, data, at, size):
        return builder.full(column), at
    return np.int64(AvroFault.NONE), at + size


@inlined
def _read_fixed(column, size, data, at, end, columns):  # type: ignore[no-untyped-def]
    """Read `size` bytes -> (result, position)."""
    if end - at < size:
        return np.int64(AvroFault.TRUNCATED), at
    if column >= 0 and not builder.put_bytes(columns, column, data, at, size):
        return builder.full(column), at
    return np.int64(AvroFault.NONE), at + size


@inlined
def _read_integer(op, column, stored_as, data, at, end, columns):  # type: ignore[no-untyped-def]
    """Read an int or long and store it in the representation `stored_as` (a StoredAs) -> (result, position)."""
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
    return _put_number(columns, column, value, stored_as), at


@inlined
def _read_double(column, data, at, end, columns):  # type: ignore[no-untyped-def]
    if end - at < 8:
        return np.int64(AvroFault.TRUNCATED), at
    if column >= 0 and not builder.put_f64(columns, column, load_f64(data, at)):
        return builder.full(column), at
    return np.int64(AvroFault.NONE), at + 8


@inlined
def _read_float(column, stored_as, data, at, end, columns):  # type: ignore[no-untyped-def]
    if end - at < 4:
        return np.int64(AvroFault.TRUNCATED), at
    fits = True
    if column >= 0:
        small = load_f32(data, at)
        fits = (
            builder.put_f32(columns, column, small)
            if stored_as == StoredAs.F32
            else builder.put_f64(columns, column, np.float64(small))
        )
    return (np.int64(AvroFault.NONE) if fits else builder.full(column)), at + 4


@inlined
def _read_boolean(column, data, at, end, columns):  # type: ignore[no-untyped-def]
    if at >= end:
        return np.int64(AvroFault.TRUNCATED), at
    if column >= 0 and not builder.put_bool(columns, column, data[at] == 1):
        return builder.full(column), at
    return np.int64(AvroFault.NONE), at + 1


@inlined
def _read_decimal(column, precision, size, data, at, end, columns):  # type: ignore[no-untyped-def]
    """Read a decimal of `size` bytes, or with a length if `size` is below 0 -> (result, position)."""
    if size < 0:
        fault, size, at = _read_length(data, at, end)
        if fault != AvroFault.NONE:
            return fault, at
    elif size > end - at:
        return np.int64(AvroFault.LENGTH), at
    result = _put_decimal(columns, column, data, at, size, precision)
    return result, (at + size if result == AvroFault.NONE else at)


@inlined
def _read_enum(instruction, program, data, at, end, columns):  # type: ignore[no-untyped-def]
    """Read a symbol of an enum -> (result, position)."""
    column, symbols = instruction[Word.A], instruction[Word.B]
    value, at = varint32(data, at, end)
    if at > end:
        return np.int64(AvroFault.NUMBER), at
    if value < 0 or value >= instruction[Word.C] or program.tables[symbols + 2 * value] < 0:
        return np.int64(AvroFault.SYMBOL), at
    symbol = symbols + 2 * value
    if column >= 0 and not builder.put_bytes(
        columns, column, program.texts, program.tables[symbol], program.tables[symbol + 1]
    ):
        return builder.full(column), at
    return np.int64(AvroFault.NONE), at


@inlined
def _read_nullable_index(pc, instruction, tables, data, at, end, columns):  # type: ignore[no-untyped-def]
    """Read the index of a branch in a union of null and another type -> (result, position, next row)."""
    value, at = varint32(data, at, end)
    if at > end:
        return np.int64(AvroFault.NUMBER), at, pc
    if value == instruction[Word.A]:
        return builder.put_nulls(columns, tables, instruction[Word.C], instruction[Word.D]), at, instruction[Word.B]
    return np.int64(AvroFault.BRANCH if value < 0 or value > 1 else AvroFault.NONE), at, pc


@inlined
def _read_union_index(pc, instruction, tables, data, at, end):  # type: ignore[no-untyped-def]
    """Read the index of a branch in any other union -> (fault, position, next row)."""
    value, at = varint32(data, at, end)
    if at > end:
        return np.int64(AvroFault.NUMBER), at, pc
    if value < 0 or value >= instruction[Word.A]:
        return np.int64(AvroFault.BRANCH), at, pc
    return np.int64(AvroFault.NONE), at, tables[instruction[Word.B] + value]


@inlined
def _read_block_count(data, at, end):  # type: ignore[no-untyped-def]
    """Read the count of a block of elements -> (count, or -1 if it is malformed; position).

    A negative count is followed by the size of the block in bytes, which is ignored here.
    """
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
def _begin_elements(column, data, at, end, columns, stack, depth):  # type: ignore[no-untyped-def]
    """Read the first count of an array or map and push its frame -> (fault, position)."""
    if depth >= STACK_SIZE:
        return np.int64(AvroFault.DEPTH), at
    count, at = _read_block_count(data, at, end)
    if count < 0:
        return np.int64(AvroFault.COUNT), at
    # The program continues with NEXT, which ends an element. So count one element before the first.
    stack[depth, Loop.LEFT] = count + 1 if count > 0 else 0
    stack[depth, Loop.POSITION] = -1
    stack[depth, Loop.FIRST_ENTRY] = (
        columns[columns[column, builder.Col.CHILD], builder.Col.ENTRIES] if column >= 0 else 0
    )
    return np.int64(AvroFault.NONE), at


@inlined
def _end_element(stack, top, at, empty_count):  # type: ignore[no-untyped-def]
    """Count the element that ends at `at` -> (fault, number of elements without bytes so far)."""
    stack[top, Loop.LEFT] -= 1
    if stack[top, Loop.POSITION] == at:
        empty_count += 1
    stack[top, Loop.POSITION] = at
    return np.int64(AvroFault.EMPTY_ELEMENTS if empty_count > MAX_EMPTY_ELEMENTS else AvroFault.NONE), empty_count


@inlined
def _next_element(stack, top, data, at, end, empty_count):  # type: ignore[no-untyped-def]
    """End an element, and begin the next one or the next block -> (fault, position, elements without bytes so far)."""
    fault = np.int64(AvroFault.NONE)
    if stack[top, Loop.LEFT] > 0:
        fault, empty_count = _end_element(stack, top, at, empty_count)
        if stack[top, Loop.LEFT] == 0 and fault == AvroFault.NONE:
            count, at = _read_block_count(data, at, end)
            if count < 0:
                fault = np.int64(AvroFault.COUNT)
            stack[top, Loop.LEFT], stack[top, Loop.POSITION] = count, at
    return fault, at, empty_count


@inlined
def _skip_element(stack, top, data, at, end, empty_count):  # type: ignore[no-untyped-def]
    """Like `_next_element`, for elements to skip. A block with a size in bytes is skipped as a whole."""
    fault = np.int64(AvroFault.NONE)
    if stack[top, Loop.LEFT] > 0:
        fault, empty_count = _end_element(stack, top, at, empty_count)
    while fault == AvroFault.NONE and stack[top, Loop.LEFT] == 0:
        count, at = varint(data, at, end)
        if at > end:
            fault = np.int64(AvroFault.NUMBER)
        elif count == 0:
            break
        elif count > 0:
            stack[top, Loop.LEFT], stack[top, Loop.POSITION] = count, at
        else:
            fault, size, at = _read_length(data, at, end)
            if fault == AvroFault.NONE:
                at += size
    return fault, at, empty_count


@inlined
def _put_elements(column, key, first_entry, columns):  # type: ignore[no-untyped-def]
    """Append a list or map whose elements begin at entry `first_entry` of the child column; return only the result.

    key: column of a map's keys, or -1 for a list.
    """
    if column < 0:
        return np.int64(AvroFault.NONE)
    if key >= 0 and builder.may_have_duplicate_keys(columns, key, first_entry):
        columns[column, builder.Col.MAY_REPEAT_KEYS] = 1
    return np.int64(AvroFault.NONE) if builder.put_list(columns, column) else builder.full(column)


@inlined
def _run(value, at, value_end, pc, program, columns, stack):  # type: ignore[no-untyped-def]
    """Run the program from row `pc` over value[at:value_end] -> (result, position, last row that was run)."""
    rows, tables = program.rows, program.tables
    data, end, resume = value, value_end, np.int64(-1)  # resume: position in the value while a default is decoded
    result = np.int64(AvroFault.NONE)
    depth, empty_count, last_row = 0, 0, pc
    while result == AvroFault.NONE:
        op, column = rows[pc, Word.OP], rows[pc, Word.A]
        instruction = rows[pc]
        last_row = pc
        pc += 1
        if op == Op.BYTES:
            result, at = _read_bytes(column, data, at, end, columns)
        elif op in (Op.LONG, Op.INT):
            result, at = _read_integer(op, column, instruction[Word.B], data, at, end, columns)
        elif op == Op.NULLABLE:
            result, at, pc = _read_nullable_index(pc, instruction, tables, data, at, end, columns)
        elif op == Op.STRUCT:
            if not builder.put_struct(columns, column):
                result = builder.full(column)
        elif op == Op.DOUBLE:
            result, at = _read_double(column, data, at, end, columns)
        elif op == Op.END:
            break
        elif op == Op.FLOAT:
            result, at = _read_float(column, instruction[Word.B], data, at, end, columns)
        elif op == Op.BOOLEAN:
            result, at = _read_boolean(column, data, at, end, columns)
        elif op == Op.FIXED:
            result, at = _read_fixed(column, instruction[Word.B], data, at, end, columns)
        elif op == Op.DECIMAL:
            result, at = _read_decimal(column, instruction[Word.B], instruction[Word.C], data, at, end, columns)
        elif op == Op.ENUM:
            result, at = _read_enum(instruction, program, data, at, end, columns)
        elif op == Op.UNION:
            result, at, pc = _read_union_index(pc, instruction, tables, data, at, end)
        elif op == Op.JUMP:
            pc = instruction[Word.A]
        elif op == Op.NULLS:
            result = builder.put_nulls(columns, tables, instruction[Word.A], instruction[Word.B])
        elif op == Op.ARRAY:
            result, at = _begin_elements(column, data, at, end, columns, stack, depth)
            depth += 1
            pc = instruction[Word.B]
        elif op == Op.NEXT:
            result, at, empty_count = _next_element(stack, depth - 1, data, at, end, empty_count)
            if stack[depth - 1, Loop.LEFT] > 0:
                pc = instruction[Word.B]
            elif result == AvroFault.NONE:
                depth -= 1
                result = _put_elements(column, instruction[Word.C], stack[depth, Loop.FIRST_ENTRY], columns)
        elif op == Op.DEFAULT:
            resume = at
            data, at, end = program.texts, instruction[Word.A], instruction[Word.B]
        elif op == Op.RESUME:
            data, at, end, resume = value, resume, value_end, np.int64(-1)
        elif op in (Op.CALL, Op.SKIP_ARRAY):
            if depth >= STACK_SIZE:
                result = np.int64(AvroFault.DEPTH)
            elif op == Op.CALL:
                stack[depth, Call.RETURN], stack[depth, Call.POSITION] = pc, at
                pc = instruction[Word.A]
            else:
                stack[depth, Loop.LEFT], stack[depth, Loop.POSITION] = 0, -1
                pc = instruction[Word.B]
            depth += 1
        elif op == Op.RETURN:
            depth -= 1
            pc = stack[depth, Call.RETURN]
            if at == stack[depth, Call.POSITION]:  # records without bytes can nest exponentially
                empty_count += 1
                if empty_count > MAX_EMPTY_ELEMENTS:
                    result = np.int64(AvroFault.EMPTY_ELEMENTS)
        elif op == Op.REFUSED:
            result = np.int64(AvroFault.REFUSED)
        elif op == Op.SKIP_NEXT:
            result, at, empty_count = _skip_element(stack, depth - 1, data, at, end, empty_count)
            if stack[depth - 1, Loop.LEFT] > 0:
                pc = instruction[Word.B]
            else:
                depth -= 1
    return result, (at if resume < 0 else resume), last_row


@kernel
def decode_avro(values, entries, first, program, root, columns, marks, stack, faults, full_column):  # type: ignore[no-untyped-def]
    """Decode values into columns, beginning with value `first`.

    values: Values. entries: int64[n], the row of the program at which the schema of each value begins, or -1 for a
    value that faults.codes already marks as malformed. program: ProgramArrays. root: (start, end) in the program's
    tables of the columns that get a null for a null value. columns: int64[m, len(Col)]. marks: int64[m, len(Mark)],
    working memory. stack: int64[STACK_SIZE, len(Loop)], working memory. faults: DecodeFaults. full_column:
    int64[len(FullColumn)].

    Returns the number of values, or the index of the value for which `full_column` must grow before the next call.
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
            result, at, last_row = np.int64(faults.codes[i]), starts[i], np.int64(0)
        else:
            result, at, last_row = _run(values.data, starts[i], ends[i], entries[i], program, columns, stack)
        if result < 0:
            builder.note_full(columns, result, full_column)
            builder.restore(columns, marks)
            return i
        if result != AvroFault.NONE:
            builder.restore(columns, marks)
            builder.put_struct(columns, 0)  # the root and its fields have room for all values
            builder.put_nulls(columns, program.tables, root_start + 1, root_end)
            faults.codes[i] = result
            faults.positions[i] = min(at, ends[i]) - starts[i]
            faults.rows[i] = last_row
    return n
