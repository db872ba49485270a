"""Texts of JSON for its kernel, and the constants that its parts share: results, columns and places of their tables.

All of them plain numbers: members of an IntEnum are slow to compile.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from kafkalog_spark.kernels.primitives import load_u8, load_u64
from kafkalog_spark.typed.json.program import WORD_LENGTH_BITS, F, Kind, N

DONE, LEFT, FULL = 0, 1, 2
"""Results. Of a row: decoded; left to the fallback. Of a call: a domain, or the table of numbers, has no room left."""
BAD, NO_ROOM = np.int64(-1), np.int64(-2)
"""Instead of a place: a text that is left; `numbers` is full."""
IN_ZONE = 2
"""Mark of a valid slot: a timestamp in the time of the zone that the options say. 1: as it is."""
DEPTH = 64
MAX_STRING = (1 << WORD_LENGTH_BITS) - 1

K_INTEGER, K_BOOLEAN, K_DOUBLE, K_FLOAT = int(Kind.INTEGER), int(Kind.BOOLEAN), int(Kind.DOUBLE), int(Kind.FLOAT)
K_STRING, K_TIMESTAMP, K_LOCAL, K_DATE = int(Kind.STRING), int(Kind.TIMESTAMP), int(Kind.LOCAL), int(Kind.DATE)
K_DECIMAL, K_STRUCT, K_ARRAY, K_MAP = int(Kind.DECIMAL), int(Kind.STRUCT), int(Kind.ARRAY), int(Kind.MAP)
N_KIND, N_DOMAIN, N_BASE, N_LOW, N_HIGH = int(N.KIND), int(N.DOMAIN), int(N.BASE), int(N.LOW), int(N.HIGH)
N_NAMES, N_BITS, N_CHILD, N_KEY = int(N.NAMES), int(N.BITS), int(N.CHILD), int(N.KEY)
F_NODE, F_AT, F_LENGTH, F_WORD = int(F.NODE), int(F.AT), int(F.LENGTH), int(F.WORD)

ROOT = 0
"""The node of a value as a whole."""

# what a frame of the stack is
IN_STRUCT, IN_MAP, IN_OBJECT, IN_ARRAY, IN_LIST = 0, 1, 2, 3, 4  # the last three: skipped object, array, skipped array
# columns of `frames`: what it is, its node, its slot, how many elements there were when it began, how many names so far
WHAT, NODE, SLOT, BEFORE, NAMES_SEEN = 0, 1, 2, 3, 4
FRAME_WIDTH = 5
# places in `state`: bytes of the arena and rows of `numbers` that are used, which domain is full
ARENA_USED, NUMBERS_USED, FULL_DOMAIN = 0, 1, 2
# columns of `numbers`: the node, its slot, where the digits lie as place << 12 | length
OF_NODE, OF_SLOT, DIGITS = 0, 1, 2
# columns of `expected`: the name that was at this place of the last object, and the quote after it, as two words with
# masks; its length, 0 for none; its node, and that node's kind and base
WORD_1, MASK_1, WORD_2, MASK_2, NAME_LENGTH, NAME_NODE, NAME_KIND, NAME_BASE = 0, 1, 2, 3, 4, 5, 6, 7
EXPECTED_WIDTH = 8
EXPECTED_NAMES = 32
"""Names of an object that are expected where they were in the last one."""
LONGEST_EXPECTED = 15


# Texts of JSON: white space, where a string ends, its escapes, whether bytes are UTF-8.

HIGHS = np.uint64(0x8080808080808080)
LANES = 32
"""Bytes that are looked at together."""
_QUOTE, _BACKSLASH, _SPACE = 34, 92, 32


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
    data = cgutils.create_struct_proxy(kind)(context, builder, buffer).data
    place = builder.gep(builder.bitcast(data, ir.IntType(8).as_pointer()), [at])
    loaded = builder.load(builder.bitcast(place, vector.as_pointer()), align=1)
    return loaded, lambda number: ir.Constant(vector, [number] * LANES)


def _as_bits(builder: Any, found: Any) -> Any:
    """A vector of truths as a uint64, the first one lowest."""
    bits = builder.bitcast(found, ir.IntType(LANES))
    return builder.zext(bits, ir.IntType(64))


@intrinsic
def _ends_of_plain(typingctx, buffer, at):  # type: ignore[no-untyped-def]
    """Which of the LANES bytes from buffer[at] on are no plain characters of a string: quotes, backslashes, control
    characters. The lowest bit is the first byte's; no bounds check."""

    def generate(context, builder, sig, args):  # type: ignore[no-untyped-def]
        loaded, all_of = _lanes(context, builder, sig, args)
        found = builder.icmp_unsigned("==", loaded, all_of(_QUOTE))
        found = builder.or_(found, builder.icmp_unsigned("==", loaded, all_of(_BACKSLASH)))
        found = builder.or_(found, builder.icmp_unsigned("<", loaded, all_of(_SPACE)))
        return _as_bits(builder, found)

    return types.uint64(buffer, types.int64), generate


@intrinsic
def _others(typingctx, buffer, at):  # type: ignore[no-untyped-def]
    """Which of the LANES bytes from buffer[at] on are not ASCII, as `_ends_of_plain`."""

    def generate(context, builder, sig, args):  # type: ignore[no-untyped-def]
        loaded, all_of = _lanes(context, builder, sig, args)
        return _as_bits(builder, builder.icmp_signed("<", loaded, all_of(0)))

    return types.uint64(buffer, types.int64), generate


@njit(inline="always")
def is_ascii(data, at, end):  # type: ignore[no-untyped-def]
    """True if data[at:end] is ASCII."""
    while at + LANES <= end:
        if _others(data, at) != 0:
            return False
        at += LANES
    if at < end and at + LANES <= len(data):  # more than is asked for, which does not count
        return _others(data, at) & ((np.uint64(1) << np.uint64(end - at)) - np.uint64(1)) == 0
    while at < end:
        if load_u8(data, at) >= 0x80:
            return False
        at += 1
    return True


@njit(inline="always")
def space(data, at, end):  # type: ignore[no-untyped-def]
    """The place of the next byte that is not white space."""
    while at < end:
        byte = load_u8(data, at)
        if byte != 32 and byte != 10 and byte != 13 and byte != 9:
            break
        at += 1
    return at


@njit
def _hex(byte):  # type: ignore[no-untyped-def]
    if 48 <= byte <= 57:
        return np.int64(byte) - 48
    if 97 <= byte <= 102:
        return np.int64(byte) - 87
    if 65 <= byte <= 70:
        return np.int64(byte) - 55
    return BAD


@njit
def _code(data, at, end):  # type: ignore[no-untyped-def]
    """The code of four hexadecimal digits, BAD for others and for halves of pairs."""
    if at + 4 > end:
        return BAD
    code = np.int64(0)
    for i in range(4):
        digit = _hex(load_u8(data, at + i))
        if digit < 0:
            return BAD
        code = code * 16 + digit
    return BAD if 0xD800 <= code < 0xE000 else code


@njit(inline="always")
def string_end(data, at, end):  # type: ignore[no-untyped-def]
    """From after a quote -> (the place of the closing one or BAD, whether there are escapes)."""
    escapes = False
    while True:
        found = np.uint64(0)
        while at + LANES <= len(data) and at < end:  # bytes after the end are looked at, and do not count
            found = _ends_of_plain(data, at)
            if found != 0:
                at += _low_zeros(found)
                break
            at += LANES
        if found == 0:
            while at < end and load_u8(data, at) != 34 and load_u8(data, at) != 92 and load_u8(data, at) >= 32:
                at += 1
        if at >= end:
            return BAD, escapes
        byte = load_u8(data, at)
        if byte == 34:
            return at, escapes
        if byte != 92 or at + 1 >= end:
            return BAD, escapes
        escapes = True
        byte = load_u8(data, at + 1)
        if byte == 117:
            if _code(data, at + 2, end) < 0:
                return BAD, escapes
            at += 6
        elif (
            byte == 34
            or byte == 92
            or byte == 47
            or byte == 98
            or byte == 102
            or byte == 110
            or byte == 114
            or byte == 116
        ):
            at += 2
        else:
            return BAD, escapes


@njit
def unescape(data, at, end, arena, to):  # type: ignore[no-untyped-def]
    """Write a string with escapes, which string_end has found good, to arena[to:]; where it ends there."""
    while at < end:
        byte = load_u8(data, at)
        if byte != 92:
            arena[to] = byte
            at += 1
            to += 1
            continue
        byte = load_u8(data, at + 1)
        at += 2
        if byte == 117:
            code = _code(data, at, end)
            at += 4
            if code < 0x80:
                arena[to] = np.uint8(code)
                to += 1
            elif code < 0x800:
                arena[to] = np.uint8(0xC0 | (code >> 6))
                arena[to + 1] = np.uint8(0x80 | (code & 63))
                to += 2
            else:
                arena[to] = np.uint8(0xE0 | (code >> 12))
                arena[to + 1] = np.uint8(0x80 | ((code >> 6) & 63))
                arena[to + 2] = np.uint8(0x80 | (code & 63))
                to += 3
            continue
        if byte == 98:
            byte = np.uint8(8)
        elif byte == 102:
            byte = np.uint8(12)
        elif byte == 110:
            byte = np.uint8(10)
        elif byte == 114:
            byte = np.uint8(13)
        elif byte == 116:
            byte = np.uint8(9)
        arena[to] = byte
        to += 1
    return to


@njit
def is_utf8(data, at, end):  # type: ignore[no-untyped-def]
    """True if data[at:end] is UTF-8, without surrogates and overlong forms."""
    while at < end:
        if at + 8 <= end and load_u64(data, at) & HIGHS == 0:
            at += 8
            continue
        byte = load_u8(data, at)
        if byte < 0x80:
            at += 1
            continue
        if 0xC2 <= byte <= 0xDF:
            more = 1
            low, high = 0x80, 0xBF
        elif 0xE0 <= byte <= 0xEF:
            more = 2
            low = 0xA0 if byte == 0xE0 else 0x80
            high = 0x9F if byte == 0xED else 0xBF
        elif 0xF0 <= byte <= 0xF4:
            more = 3
            low = 0x90 if byte == 0xF0 else 0x80
            high = 0x8F if byte == 0xF4 else 0xBF
        else:
            return False
        if at + more >= end or load_u8(data, at + 1) < low or load_u8(data, at + 1) > high:
            return False
        for i in range(2, more + 1):
            if load_u8(data, at + i) & 0xC0 != 0x80:
                return False
        at += more + 1
    return True


# Dates and timestamps in strings of JSON, of the forms that are most frequent; all others are left.


@njit
def _two(data, at):  # type: ignore[no-untyped-def]
    """The number of two digits, BAD for others."""
    high, low = np.int64(load_u8(data, at)) - 48, np.int64(load_u8(data, at + 1)) - 48
    return high * 10 + low if 0 <= high <= 9 and 0 <= low <= 9 else BAD


@njit
def days_of(data, at, end):  # type: ignore[no-untyped-def]
    """(Days of a date YYYY-MM-DD at the beginning of data[at:end], whether there is one)."""
    if end - at < 10 or load_u8(data, at + 4) != 45 or load_u8(data, at + 7) != 45:
        return np.int64(0), False
    century, rest, month, day = _two(data, at), _two(data, at + 2), _two(data, at + 5), _two(data, at + 8)
    if century < 0 or rest < 0 or month < 1 or month > 12 or day < 1:
        return np.int64(0), False
    year = century * 100 + rest
    longest = 31
    if month == 2:
        longest = 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    elif month == 4 or month == 6 or month == 9 or month == 11:
        longest = 30
    if day > longest:
        return np.int64(0), False
    if month <= 2:
        year -= 1
        month += 12
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month - 3) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468, True


@njit
def microseconds_of(data, at, end, zoned):  # type: ignore[no-untyped-def]
    """(Microseconds of a timestamp that data[at:end] is, whether it is one): a date, then T or a space, a time to the
    second, a fraction, and if `zoned` Z or an offset of hours and minutes. Without one it is in UTC."""
    days, good = days_of(data, at, end)
    nothing = np.int64(0)
    if not good:
        return nothing, False
    us = days * 86_400_000_000
    at += 10
    if at == end:
        return us, True
    if end - at < 9 or load_u8(data, at + 3) != 58 or load_u8(data, at + 6) != 58:
        return nothing, False
    if load_u8(data, at) != 84 and load_u8(data, at) != 32:
        return nothing, False
    hour, minute, second = _two(data, at + 1), _two(data, at + 4), _two(data, at + 7)
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return nothing, False
    us += ((hour * 60 + minute) * 60 + second) * 1_000_000
    at += 9
    if at < end and load_u8(data, at) == 46:
        at += 1
        unit = np.int64(100_000)
        while at < end and 48 <= load_u8(data, at) <= 57:
            us += (np.int64(load_u8(data, at)) - 48) * unit
            unit //= 10
            at += 1
    if at == end:
        return us, True
    if not zoned:
        return nothing, False
    if load_u8(data, at) == 90 and at + 1 == end:
        return us, True
    if (load_u8(data, at) != 43 and load_u8(data, at) != 45) or end - at != 6 or load_u8(data, at + 3) != 58:
        return nothing, False
    hour, minute = _two(data, at + 1), _two(data, at + 4)
    if hour < 0 or hour > 17 or minute < 0 or minute > 59:
        return nothing, False
    offset = (hour * 60 + minute) * 60_000_000
    return (us - offset if load_u8(data, at) == 43 else us + offset), True


@njit
def names_a_zone(data, at, end):  # type: ignore[no-untyped-def]
    """True if a timestamp that microseconds_of has read ends in Z or an offset."""
    if end - at <= 19:
        return False
    return load_u8(data, end - 1) == 90 or load_u8(data, end - 6) == 43 or load_u8(data, end - 6) == 45
