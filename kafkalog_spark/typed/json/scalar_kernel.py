"""Scalars of JSON for its kernel, into the cells of their nodes: strings, numbers, words, dates and timestamps. What is
not of the most frequent form is DEFERRED to the fallback."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kafkalog_spark.kernels.primitives import byte_pointer, helper, inlined, load_i32, load_u8
from kafkalog_spark.typed.json.program import LENGTH_BITS, UNESCAPED, Node, NodeKind

DEFERRED = np.int64(-1)  # instead of a position or number: the fallback decides


class Char(IntEnum):
    """Characters that mean something in JSON, or in a number, date or timestamp."""

    TAB = 0x09
    LINE_FEED = 0x0A
    CARRIAGE_RETURN = 0x0D
    SPACE = 0x20
    QUOTE = 0x22
    PLUS = 0x2B
    COMMA = 0x2C
    MINUS = 0x2D
    POINT = 0x2E
    ZERO = 0x30
    COLON = 0x3A
    UPPER_E = 0x45
    UPPER_T = 0x54
    UPPER_Z = 0x5A
    OPEN_BRACKET = 0x5B
    BACKSLASH = 0x5C
    CLOSE_BRACKET = 0x5D
    LOWER_E = 0x65
    LOWER_F = 0x66
    LOWER_N = 0x6E
    LOWER_T = 0x74
    LOWER_U = 0x75
    OPEN_BRACE = 0x7B
    CLOSE_BRACE = 0x7D


LANES = 32  # bytes that are looked at together
_ESCAPED = np.zeros(256, np.uint8)
"""Character that one after a backslash stands for; 0: there is no such escape."""
_ESCAPED[list(b'"\\/bfnrt')] = list(b'"\\/\b\f\n\r\t')
_HEX = np.full(256, -1, np.int64)
_HEX[list(b"0123456789abcdefABCDEF")] = [*range(16), *range(10, 16)]


@intrinsic
def _low_zeros(typingctx, word):  # type: ignore[no-untyped-def]
    """How many of the lowest bits of a uint64 that is not 0 are 0."""

    def generate(context, builder, sig, args):  # type: ignore[no-untyped-def]
        (bits,) = args
        return builder.cttz(bits, ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


def _lanes(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """LANES bytes of a buffer as a vector, and what makes a vector of one number."""
    vector = ir.VectorType(ir.IntType(8), LANES)
    (buffer, at), (kind, _) = args, sig.args
    address = byte_pointer(context, builder, kind, buffer, at)
    loaded = builder.load(builder.bitcast(address, vector.as_pointer()), align=1)
    return loaded, lambda number: ir.Constant(vector, [int(number)] * LANES)


def _as_bits(builder: Any, truths: Any) -> Any:
    """A vector of truths as a uint64, the first one lowest."""
    return builder.zext(builder.bitcast(truths, ir.IntType(LANES)), ir.IntType(64))


@intrinsic
def _ends_of_plain(typingctx, buffer, at):  # type: ignore[no-untyped-def]
    """Which of the LANES bytes from buffer[at] on are no plain characters of a string: quotes, backslashes, control
    characters. The lowest bit is the first byte's; no bounds check."""

    def generate(context, builder, sig, args):  # type: ignore[no-untyped-def]
        loaded, all_of = _lanes(context, builder, sig, args)
        special = builder.icmp_unsigned("==", loaded, all_of(Char.QUOTE))
        special = builder.or_(special, builder.icmp_unsigned("==", loaded, all_of(Char.BACKSLASH)))
        special = builder.or_(special, builder.icmp_unsigned("<", loaded, all_of(Char.SPACE)))
        return _as_bits(builder, special)

    return types.uint64(buffer, types.int64), generate


@intrinsic
def _not_ascii(typingctx, buffer, at):  # type: ignore[no-untyped-def]
    """Which of the LANES bytes from buffer[at] on are not ASCII, as `_ends_of_plain`."""

    def generate(context, builder, sig, args):  # type: ignore[no-untyped-def]
        loaded, all_of = _lanes(context, builder, sig, args)
        return _as_bits(builder, builder.icmp_signed("<", loaded, all_of(0)))

    return types.uint64(buffer, types.int64), generate


@inlined
def is_ascii(data, at, end):  # type: ignore[no-untyped-def]
    while at + LANES <= end:
        if _not_ascii(data, at) != 0:
            return False
        at += LANES
    if at < end and at + LANES <= len(data):  # bytes after the end are looked at, and do not count
        return _not_ascii(data, at) & ((np.uint64(1) << np.uint64(end - at)) - np.uint64(1)) == 0
    while at < end:
        if load_u8(data, at) >= 0x80:
            return False
        at += 1
    return True


@inlined
def skip_space(data, at, end):  # type: ignore[no-untyped-def]
    """The position of the next byte that is not white space."""
    while at < end:
        byte = load_u8(data, at)
        if byte != Char.SPACE and byte != Char.LINE_FEED and byte != Char.CARRIAGE_RETURN and byte != Char.TAB:
            break
        at += 1
    return at


@inlined
def is_digit(byte):  # type: ignore[no-untyped-def]
    return np.uint8(byte - np.uint8(Char.ZERO)) <= 9


@helper
def _code_unit(data, at, end):  # type: ignore[no-untyped-def]
    """The number of four hexadecimal digits; DEFERRED for others and for halves of surrogate pairs."""
    if at + 4 > end:
        return DEFERRED
    code = np.int64(0)
    for i in range(4):
        digit = _HEX[load_u8(data, at + i)]
        if digit < 0:
            return DEFERRED
        code = code * 16 + digit
    return DEFERRED if 0xD800 <= code < 0xE000 else code


@inlined
def string_end(data, at, end):  # type: ignore[no-untyped-def]
    """From after a quote -> (the position of the closing one or DEFERRED, whether there are escapes)."""
    escapes = False
    while True:
        special = np.uint64(0)
        while at + LANES <= len(data) and at < end:  # bytes after the end are looked at, and do not count
            special = _ends_of_plain(data, at)
            if special != 0:
                at += _low_zeros(special)
                break
            at += LANES
        if special == 0:
            while at < end:
                byte = load_u8(data, at)
                if byte == Char.QUOTE or byte == Char.BACKSLASH or byte < Char.SPACE:
                    break
                at += 1
        if at >= end:
            return DEFERRED, escapes
        byte = load_u8(data, at)
        if byte == Char.QUOTE:
            return at, escapes
        if byte != Char.BACKSLASH or at + 1 >= end:
            return DEFERRED, escapes
        escapes = True
        byte = load_u8(data, at + 1)
        if byte == Char.LOWER_U:
            if _code_unit(data, at + 2, end) < 0:
                return DEFERRED, escapes
            at += 6
        elif _ESCAPED[byte] != 0:
            at += 2
        else:
            return DEFERRED, escapes


@helper
def unescape(data, at, end, out, to):  # type: ignore[no-untyped-def]
    """Write a string whose escapes string_end has found good to out[to:]; the position after it there."""
    while at < end:
        byte = load_u8(data, at)
        at += 1
        if byte == Char.BACKSLASH:
            byte = load_u8(data, at)
            at += 1
            if byte == Char.LOWER_U:
                code = _code_unit(data, at, end)
                at += 4
                if code >= 0x800:
                    out[to] = np.uint8(0xE0 | (code >> 12))
                    out[to + 1] = np.uint8(0x80 | ((code >> 6) & 63))
                    to += 2
                elif code >= 0x80:
                    out[to] = np.uint8(0xC0 | (code >> 6))
                    to += 1
                byte = np.uint8(code if code < 0x80 else 0x80 | (code & 63))
            else:
                byte = _ESCAPED[byte]
        out[to] = byte
        to += 1
    return to


@helper
def _two_digits(data, at):  # type: ignore[no-untyped-def]
    high, low = np.int64(load_u8(data, at)) - Char.ZERO, np.int64(load_u8(data, at + 1)) - Char.ZERO
    return high * 10 + low if 0 <= high <= 9 and 0 <= low <= 9 else DEFERRED


@helper
def days_of(data, at, end):  # type: ignore[no-untyped-def]
    """(Days of a date YYYY-MM-DD at the beginning of data[at:end], whether there is one)."""
    nothing = np.int64(0)
    if end - at < 10 or load_u8(data, at + 4) != Char.MINUS or load_u8(data, at + 7) != Char.MINUS:
        return nothing, False
    century, rest = _two_digits(data, at), _two_digits(data, at + 2)
    month, day = _two_digits(data, at + 5), _two_digits(data, at + 8)
    if century < 0 or rest < 0 or month < 1 or month > 12 or day < 1:
        return nothing, False
    year = century * 100 + rest
    longest = 31
    if month == 2:
        longest = 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    elif month == 4 or month == 6 or month == 9 or month == 11:
        longest = 30
    if day > longest:
        return nothing, False
    if month <= 2:
        year -= 1
        month += 12
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month - 3) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468, True


@helper
def _minutes_of(data, at, last_hour):  # type: ignore[no-untyped-def]
    """Minutes of HH:MM, DEFERRED where that is none."""
    hour, minute = _two_digits(data, at), _two_digits(data, at + 3)
    if hour < 0 or hour > last_hour or minute < 0 or minute > 59 or load_u8(data, at + 2) != Char.COLON:
        return DEFERRED
    return hour * 60 + minute


@helper
def microseconds_of(data, at, end, zoned):  # type: ignore[no-untyped-def]
    """(Microseconds of the timestamp data[at:end], whether it is one): a date, then T or a space, a time to the second,
    a fraction, and if `zoned` Z or an offset of hours and minutes. Without one it is in UTC."""
    days, good = days_of(data, at, end)
    nothing = np.int64(0)
    if not good:
        return nothing, False
    us = days * 86_400_000_000
    at += 10
    if at == end:
        return us, True
    if end - at < 9 or load_u8(data, at + 6) != Char.COLON:
        return nothing, False
    if load_u8(data, at) != Char.UPPER_T and load_u8(data, at) != Char.SPACE:
        return nothing, False
    minutes, second = _minutes_of(data, at + 1, 23), _two_digits(data, at + 7)
    if minutes < 0 or second < 0 or second > 59:
        return nothing, False
    us += (minutes * 60 + second) * 1_000_000
    at += 9
    if at < end and load_u8(data, at) == Char.POINT:
        at += 1
        unit = np.int64(100_000)
        while at < end and is_digit(load_u8(data, at)):
            us += (np.int64(load_u8(data, at)) - Char.ZERO) * unit
            unit //= 10
            at += 1
    if at == end:
        return us, True
    if not zoned:
        return nothing, False
    sign = load_u8(data, at)
    if sign == Char.UPPER_Z and at + 1 == end:
        return us, True
    if (sign != Char.PLUS and sign != Char.MINUS) or end - at != 6:
        return nothing, False
    minutes = _minutes_of(data, at + 1, 17)
    if minutes < 0:
        return nothing, False
    offset = minutes * 60_000_000
    return (us - offset if sign == Char.PLUS else us + offset), True


@helper
def names_a_zone(data, at, end):  # type: ignore[no-untyped-def]
    """True if a timestamp that microseconds_of has read ends in Z or an offset."""
    if end - at <= 19:
        return False
    sign = load_u8(data, end - 6)
    return load_u8(data, end - 1) == Char.UPPER_Z or sign == Char.PLUS or sign == Char.MINUS


NO_ROOM, NOT_SCALAR = np.int64(-2), np.int64(-3)
"""Instead of a position, as DEFERRED: a list level or `numbers` is full; no string, number or word begins there."""
SKIPPED = 0
"""The node of a value that no column is for; as a value's node it is the root, which is never inside of another."""
IN_OPTIONS_ZONE = 2
"""In `valid`: a timestamp that is local to the zone of the options. 1: a value as it is; 0: null."""
MAX_STRING = (1 << LENGTH_BITS) - 1
NUMBER_LENGTH_BITS = 12
_MAX_NUMBER = 900
_MAX_DIGITS = 18
_TENS = np.array([10.0**i for i in range(23)])
_WHOLE_TENS = np.array([10**i for i in range(19)], np.int64)
_TRUE, _NULL, _ALSE = (int.from_bytes(word, "little") for word in (b"true", b"null", b"alse"))


class JsonCells(NamedTuple):
    """The columns of a batch as the kernel fills them."""

    cells: np.ndarray  # int64, zeros
    valid: np.ndarray  # uint8 by cell, zeros
    unescaped: np.ndarray  # uint8, as long as the values: the strings that had escapes
    numbers: np.ndarray  # int64[m, len(LongNumber)], of doubles and floats whose digits Arrow parses
    counts: np.ndarray  # int64 by list level: rows so far
    capacity: np.ndarray  # int64 by list level: rows that fit
    used: np.ndarray  # int64[len(Used)]


class LongNumber(IntEnum):
    """Columns of JsonCells.numbers."""

    NODE = 0
    ROW = 1
    DIGITS = 2  # position << NUMBER_LENGTH_BITS | length


class Used(IntEnum):
    """Entries of JsonCells.used."""

    UNESCAPED = 0  # bytes
    NUMBERS = 1  # rows
    FULL_LEVEL = 2  # the list level for which there was NO_ROOM; -1: `numbers`


@intrinsic
def _bits_of(typingctx, number):  # type: ignore[no-untyped-def]
    """The bits of a float64."""

    def generate(context, builder, sig, args):  # type: ignore[no-untyped-def]
        (value,) = args
        return builder.bitcast(value, ir.IntType(64))

    return types.int64(types.float64), generate


@inlined
def _digits(data, at, end, number):  # type: ignore[no-untyped-def]
    """(Position after the digits at data[at:], `number` with them at its end; above 18 digits that does not count)."""
    while at < end:
        digit = np.uint8(load_u8(data, at) - np.uint8(Char.ZERO))
        if digit > 9:
            break
        number = number * 10 + np.int64(digit)
        at += 1
    return at, number


@inlined
def _exponent(data, at, end):  # type: ignore[no-untyped-def]
    """The exponent after an e -> (position after it or DEFERRED, its value; of huge ones any above 100,000)."""
    minus = at < end and load_u8(data, at) == Char.MINUS
    if minus or (at < end and load_u8(data, at) == Char.PLUS):
        at += 1
    first, exponent = at, np.int64(0)
    while at < end and is_digit(load_u8(data, at)):
        if exponent < 100_000:
            exponent = exponent * 10 + (np.int64(load_u8(data, at)) - Char.ZERO)
        at += 1
    return (at if at > first else DEFERRED), (-exponent if minus else exponent)


@inlined
def _number(data, at, end):  # type: ignore[no-untyped-def]
    """A number at data[at:end] -> (position after it or DEFERRED, its digits as one whole number, how many these are
    without zeros in front, its power of ten, whether it is negative, whether it is a whole number)."""
    begin = at
    negative = load_u8(data, at) == Char.MINUS
    if negative:
        at += 1
    digits, count, power, whole = np.int64(0), np.int64(0), np.int64(0), True
    first = at
    at, digits = _digits(data, at, end, digits)
    if at == first or (load_u8(data, first) == Char.ZERO and at - first > 1):
        return DEFERRED, digits, count, power, negative, whole
    count = np.int64(0) if load_u8(data, first) == Char.ZERO else np.int64(at - first)
    if at < end and load_u8(data, at) == Char.POINT:
        whole = False
        at += 1
        first = at
        if count == 0:
            while at < end and load_u8(data, at) == Char.ZERO:
                at += 1
        counted = at
        at, digits = _digits(data, at, end, digits)
        if at == first:
            return DEFERRED, digits, count, power, negative, whole
        count += at - counted
        power = first - at
    if at < end and (load_u8(data, at) == Char.LOWER_E or load_u8(data, at) == Char.UPPER_E):
        whole = False
        at, exponent = _exponent(data, at + 1, end)
        power += exponent
    if at - begin > _MAX_NUMBER:
        at = DEFERRED
    return at, digits, count, power, negative, whole


@inlined
def _take_string(data, at, end, node, kind, cell, nodes, columns):  # type: ignore[no-untyped-def]
    """The string whose quote is at data[at] -> the position after it, or DEFERRED."""
    at += 1
    close, escapes = string_end(data, at, end)
    if close < 0:
        return DEFERRED
    if node == SKIPPED:
        return close + 1
    cells, mark = columns.cells, np.uint8(1)
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
        us, good = microseconds_of(data, at, close, kind == NodeKind.TIMESTAMP)
        if not good:
            return DEFERRED
        cells[cell] = us
        if nodes[node, Node.LOW] != 0 and not names_a_zone(data, at, close):
            mark = np.uint8(IN_OPTIONS_ZONE)
    elif kind == NodeKind.DATE:
        days, good = days_of(data, at, close)
        if not good or close - at != 10:
            return DEFERRED
        cells[cell] = days
    else:
        return DEFERRED
    columns.valid[cell] = mark
    return close + 1


@inlined
def _floating(kind, digits, power):  # type: ignore[no-untyped-def]
    """The number nearest to digits * 10**power, both of which are exact in its type."""
    if kind == NodeKind.DOUBLE:
        number = np.float64(digits)
        return number * _TENS[power] if power >= 0 else number / _TENS[-power]
    small = np.float32(digits)
    tens = np.float32(_TENS[power if power >= 0 else -power])
    return np.float64(np.float32(small * tens) if power >= 0 else np.float32(small / tens))


@inlined
def _note_long_number(node, row, at, close, columns):  # type: ignore[no-untyped-def]
    """Leave digits that no double holds exactly to Arrow's parser; returns whether there is room."""
    used = columns.used[Used.NUMBERS]
    if used >= len(columns.numbers):
        columns.used[Used.FULL_LEVEL] = -1
        return False
    number = columns.numbers[used]
    number[LongNumber.NODE], number[LongNumber.ROW] = node, row
    number[LongNumber.DIGITS] = (at << NUMBER_LENGTH_BITS) | (close - at)
    columns.used[Used.NUMBERS] = used + 1
    return True


@inlined
def _take_number(data, at, end, node, kind, row, cell, nodes, columns):  # type: ignore[no-untyped-def]
    """The number at data[at] -> the position after it, DEFERRED or NO_ROOM."""
    close, digits, count, power, negative, whole = _number(data, at, end)
    if close < 0:
        return DEFERRED
    if node == SKIPPED:
        return close
    value = -digits if negative else digits
    if kind == NodeKind.INTEGER:
        if not whole or count > _MAX_DIGITS or value < nodes[node, Node.LOW] or value > nodes[node, Node.HIGH]:
            return DEFERRED
    elif kind == NodeKind.DOUBLE or kind == NodeKind.FLOAT:
        exact = count <= 15 if kind == NodeKind.DOUBLE else count <= 7
        most = 22 if kind == NodeKind.DOUBLE else 10
        if exact and -most <= power <= most:
            number = _floating(kind, digits, power)
            value = _bits_of(-number if negative and not (whole and digits == 0) else number)
        elif not _note_long_number(node, row, at, close, columns):
            return NO_ROOM
    elif kind == NodeKind.DECIMAL:
        shift = power + nodes[node, Node.LOW]
        if count > _MAX_DIGITS or shift < 0 or shift > 18 or digits >= _WHOLE_TENS[18 - shift]:
            return DEFERRED
        value *= _WHOLE_TENS[shift]
        if nodes[node, Node.HIGH] < 18 and abs(value) >= _WHOLE_TENS[nodes[node, Node.HIGH]]:
            return DEFERRED
    elif kind == NodeKind.TIMESTAMP:
        if not whole or count > 12:
            return DEFERRED
        value *= 1_000_000
    elif kind == NodeKind.STRING:
        if not whole or count > _MAX_DIGITS or (negative and digits == 0):
            return DEFERRED
        value = (at << LENGTH_BITS) | (close - at)
    else:
        return DEFERRED
    columns.cells[cell] = value
    columns.valid[cell] = 1
    return close


@inlined
def _take_word(data, at, end, node, kind, cell, columns):  # type: ignore[no-untyped-def]
    """`true`, `false` or `null` at data[at] -> the position after it, or DEFERRED."""
    byte = load_u8(data, at)
    size = 5 if byte == Char.LOWER_F else 4
    if at + size > end:
        return DEFERRED
    word = load_i32(data, at + (size - 4))
    if word != (_ALSE if byte == Char.LOWER_F else _TRUE if byte == Char.LOWER_T else _NULL):
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
def take_scalar(data, at, end, node, kind, row, cell, nodes, columns):  # type: ignore[no-untyped-def]
    """Put the scalar at data[at] into `cell` -> the position after it, DEFERRED, NO_ROOM or NOT_SCALAR."""
    byte = load_u8(data, at)
    if byte == Char.QUOTE:
        return _take_string(data, at, end, node, kind, cell, nodes, columns)
    if byte == Char.MINUS or is_digit(byte):
        return _take_number(data, at, end, node, kind, row, cell, nodes, columns)
    if byte == Char.LOWER_T or byte == Char.LOWER_F or byte == Char.LOWER_N:
        return _take_word(data, at, end, node, kind, cell, columns)
    return NOT_SCALAR
