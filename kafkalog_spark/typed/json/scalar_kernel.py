"""Decodes JSON scalars into the cells of their nodes: strings, numbers and the words true, false and null.

A value is DEFERRED, so that the fallback decodes it, if a scalar does not have one of the most frequent forms. The
functions share these arguments: `data` uint8[:] with the JSON text, `at` and `end` positions in it, `node` and `kind`
the scalar's node and its NodeKind, `row` its row in the list level, `cell` the index of its cell, `nodes`
int64[n, len(Node)], and `columns` JsonCells.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kafkalog_spark.kernels.primitives import inlined, load_i32, load_u8
from kafkalog_spark.typed.json.program import LENGTH_BITS, UNESCAPED, Node, NodeKind
from kafkalog_spark.typed.json.string_kernel import DEFERRED, Char, is_digit, string_end, unescape
from kafkalog_spark.typed.json.time_kernel import days_of, has_zone, microseconds_of

NO_ROOM, NOT_SCALAR = np.int64(-2), np.int64(-3)
"""Results instead of a position. NO_ROOM: a list level or `numbers` is full. NOT_SCALAR: no scalar begins there."""
SKIPPED = 0
"""Node of a value without a column. The same number is that of the root, which is never inside another value."""
IN_OPTIONS_ZONE = 2
"""Entry of `valid` for a timestamp that is local to the zone of the options. For other values it is 1, for null 0."""
MAX_STRING = (1 << LENGTH_BITS) - 1
NUMBER_LENGTH_BITS = 12
_MAX_NUMBER = 900  # characters of a number; a value with a longer one is DEFERRED (Jackson's limit is 1,000)
_MAX_DIGITS = 18  # digits that always fit an int64
_FLOAT_TENS = np.array([10.0**i for i in range(23)])
_INTEGER_TENS = np.array([10**i for i in range(19)], np.int64)
_TRUE, _NULL, _FALSE_WITHOUT_F = (
    int.from_bytes(word, "little") for word in (b"true", b"null", b"alse")
)  # as loaded by load_i32


class JsonCells(NamedTuple):
    """The columns of a batch while the kernel fills them."""

    cells: np.ndarray  # int64[cells], initially zeros; see program.py
    valid: np.ndarray  # uint8[cells], initially zeros
    unescaped: np.ndarray  # uint8[size of the values], contents of the strings with escapes
    numbers: np.ndarray  # int64[m, len(LongNumber)], numbers that Arrow parses after the kernel
    counts: np.ndarray  # int64[list levels], rows so far
    capacity: np.ndarray  # int64[list levels], rows that fit
    used: np.ndarray  # int64[len(Used)]


class LongNumber(IntEnum):
    """Columns of JsonCells.numbers: doubles and floats whose digits or exponent are too large for exact arithmetic."""

    NODE = 0
    ROW = 1
    TEXT = 2  # position << NUMBER_LENGTH_BITS | length


class Used(IntEnum):
    """Entries of JsonCells.used."""

    UNESCAPED = 0  # bytes of `unescaped`
    NUMBERS = 1  # rows of `numbers`
    FULL_LEVEL = 2  # after NO_ROOM: the list level that is full, or -1 if `numbers` is


@intrinsic
def _bits_of(typingctx, number):  # type: ignore[no-untyped-def]
    """Return the bits of a float64 as int64."""

    def generate(context, builder, sig, args):  # type: ignore[no-untyped-def]
        (value,) = args
        return builder.bitcast(value, ir.IntType(64))

    return types.int64(types.float64), generate


@inlined
def _read_digits(data, at, end, number):  # type: ignore[no-untyped-def]
    """Read decimal digits -> (position after them, `number` with the digits appended).

    The number is meaningless if it has more than 18 digits.
    """
    while at < end:
        digit = np.uint8(load_u8(data, at) - np.uint8(Char.ZERO))
        if digit > 9:
            break
        number = number * 10 + np.int64(digit)
        at += 1
    return at, number


@inlined
def _read_exponent(data, at, end):  # type: ignore[no-untyped-def]
    """Read the exponent after an e -> (position after it or DEFERRED, its value).

    An exponent of 100,000 or more is returned as some number in that range.
    """
    is_negative = at < end and load_u8(data, at) == Char.MINUS
    if is_negative or (at < end and load_u8(data, at) == Char.PLUS):
        at += 1
    first, exponent = at, np.int64(0)
    while at < end and is_digit(load_u8(data, at)):
        if exponent < 100_000:
            exponent = exponent * 10 + (np.int64(load_u8(data, at)) - Char.ZERO)
        at += 1
    return (at if at > first else DEFERRED), (-exponent if is_negative else exponent)


@inlined
def _read_number(data, at, end):  # type: ignore[no-untyped-def]
    """Read a number.

    Returns (position after it or DEFERRED; its digits as one integer; number of digits without leading zeros; power of
    ten that the integer is multiplied with; whether it is negative; whether it has neither a point nor an exponent).
    """
    begin = at
    is_negative = load_u8(data, at) == Char.MINUS
    if is_negative:
        at += 1
    digits, count, power, is_integer = np.int64(0), np.int64(0), np.int64(0), True
    first = at
    at, digits = _read_digits(data, at, end, digits)
    if at == first or (load_u8(data, first) == Char.ZERO and at - first > 1):
        return DEFERRED, digits, count, power, is_negative, is_integer
    count = np.int64(0) if load_u8(data, first) == Char.ZERO else np.int64(at - first)
    if at < end and load_u8(data, at) == Char.POINT:
        is_integer = False
        at += 1
        first = at
        if count == 0:
            while at < end and load_u8(data, at) == Char.ZERO:
                at += 1
        counted = at
        at, digits = _read_digits(data, at, end, digits)
        if at == first:
            return DEFERRED, digits, count, power, is_negative, is_integer
        count += at - counted
        power = first - at
    if at < end and (load_u8(data, at) == Char.LOWER_E or load_u8(data, at) == Char.UPPER_E):
        is_integer = False
        at, exponent = _read_exponent(data, at + 1, end)
        power += exponent
    if at - begin > _MAX_NUMBER:
        at = DEFERRED
    return at, digits, count, power, is_negative, is_integer


@inlined
def _store_string(data, at, end, node, kind, cell, nodes, columns):  # type: ignore[no-untyped-def]
    """Store the string whose opening quote is at data[at]; return the position after it, or DEFERRED."""
    at += 1
    close, escapes = string_end(data, at, end)
    if close < 0:
        return DEFERRED
    if node == SKIPPED:
        return close + 1
    cells, valid = columns.cells, np.uint8(1)
    if kind == NodeKind.STRING:
        if close - at > MAX_STRING:
            return DEFERRED
        if escapes:
            to = columns.used[Used.UNESCAPED]
            after = unescape(data, at, close, columns.unescaped, to)
            columns.used[Used.UNESCAPED] = after
            cells[cell] = UNESCAPED | (to << LENGTH_BITS) | (after - to)
        else:
            cells[cell] = (at << LENGTH_BITS) | (close - at)
    elif kind == NodeKind.TIMESTAMP or kind == NodeKind.LOCAL_TIMESTAMP:
        us, is_known = microseconds_of(data, at, close, kind == NodeKind.TIMESTAMP)
        if not is_known:
            return DEFERRED
        cells[cell] = us
        if nodes[node, Node.LOW] != 0 and not has_zone(data, at, close):
            valid = np.uint8(IN_OPTIONS_ZONE)
    elif kind == NodeKind.DATE:
        days, is_known = days_of(data, at, close)
        if not is_known or close - at != 10:
            return DEFERRED
        cells[cell] = days
    else:
        return DEFERRED
    columns.valid[cell] = valid
    return close + 1


@inlined
def _floating(kind, digits, power):  # type: ignore[no-untyped-def]
    """Return the number nearest to digits * 10**power. Both factors must be exact in the type of the node."""
    if kind == NodeKind.DOUBLE:
        number = np.float64(digits)
        return number * _FLOAT_TENS[power] if power >= 0 else number / _FLOAT_TENS[-power]
    small = np.float32(digits)
    tens = np.float32(_FLOAT_TENS[power if power >= 0 else -power])
    return np.float64(np.float32(small * tens) if power >= 0 else np.float32(small / tens))


@inlined
def _note_long_number(node, row, at, close, columns):  # type: ignore[no-untyped-def]
    """Add the number data[at:close] to `numbers`, so that Arrow parses it; return whether there was room."""
    used = columns.used[Used.NUMBERS]
    if used >= len(columns.numbers):
        columns.used[Used.FULL_LEVEL] = -1
        return False
    number = columns.numbers[used]
    number[LongNumber.NODE], number[LongNumber.ROW] = node, row
    number[LongNumber.TEXT] = (at << NUMBER_LENGTH_BITS) | (close - at)
    columns.used[Used.NUMBERS] = used + 1
    return True


@inlined
def _store_number(data, at, end, node, kind, row, cell, nodes, columns):  # type: ignore[no-untyped-def]
    """Store the number at data[at]; return the position after it, DEFERRED or NO_ROOM."""
    close, digits, count, power, is_negative, is_integer = _read_number(data, at, end)
    if close < 0:
        return DEFERRED
    if node == SKIPPED:
        return close
    value = -digits if is_negative else digits
    if kind == NodeKind.INTEGER:
        if not is_integer or count > _MAX_DIGITS or value < nodes[node, Node.LOW] or value > nodes[node, Node.HIGH]:
            return DEFERRED
    elif kind == NodeKind.DOUBLE or kind == NodeKind.FLOAT:
        exact = count <= 15 if kind == NodeKind.DOUBLE else count <= 7
        max_power = 22 if kind == NodeKind.DOUBLE else 10
        if exact and -max_power <= power <= max_power:
            number = _floating(kind, digits, power)
            value = _bits_of(-number if is_negative and not (is_integer and digits == 0) else number)
        elif not _note_long_number(node, row, at, close, columns):
            return NO_ROOM
    elif kind == NodeKind.DECIMAL:
        shift = power + nodes[node, Node.LOW]
        if count > _MAX_DIGITS or shift < 0 or shift > 18 or digits >= _INTEGER_TENS[18 - shift]:
            return DEFERRED
        value *= _INTEGER_TENS[shift]
        if nodes[node, Node.HIGH] < 18 and abs(value) >= _INTEGER_TENS[nodes[node, Node.HIGH]]:
            return DEFERRED
    elif kind == NodeKind.TIMESTAMP:
        if not is_integer or count > 12:
            return DEFERRED
        value *= 1_000_000
    elif kind == NodeKind.STRING:
        if not is_integer or count > _MAX_DIGITS or (is_negative and digits == 0):
            return DEFERRED
        value = (at << LENGTH_BITS) | (close - at)
    else:
        return DEFERRED
    columns.cells[cell] = value
    columns.valid[cell] = 1
    return close


@inlined
def _store_word(data, at, end, node, kind, cell, columns):  # type: ignore[no-untyped-def]
    """Store the true, false or null at data[at]; return the position after it, or DEFERRED."""
    byte = load_u8(data, at)
    size = 5 if byte == Char.LOWER_F else 4
    if at + size > end:
        return DEFERRED
    word = load_i32(data, at + (size - 4))
    if word != (_FALSE_WITHOUT_F if byte == Char.LOWER_F else _TRUE if byte == Char.LOWER_T else _NULL):
        return DEFERRED
    if node != SKIPPED and byte != Char.LOWER_N:
        if kind == NodeKind.BOOLEAN:
            columns.cells[cell] = byte == Char.LOWER_T
        elif kind == NodeKind.STRING:
            columns.cells[cell] = (at << LENGTH_BITS) | size
        else:
            return DEFERRED
        columns.valid[cell] = 1
    return at + size


@inlined
def store_scalar(data, at, end, node, kind, row, cell, nodes, columns):  # type: ignore[no-untyped-def]
    """Store the scalar at data[at]; return the position after it, DEFERRED, NO_ROOM or NOT_SCALAR."""
    byte = load_u8(data, at)
    if byte == Char.QUOTE:
        return _store_string(data, at, end, node, kind, cell, nodes, columns)
    if byte == Char.MINUS or is_digit(byte):
        return _store_number(data, at, end, node, kind, row, cell, nodes, columns)
    if byte == Char.LOWER_T or byte == Char.LOWER_F or byte == Char.LOWER_N:
        return _store_word(data, at, end, node, kind, cell, columns)
    return NOT_SCALAR
