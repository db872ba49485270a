"""Strings, numbers and words of JSON, each to the word of its slot, as the type of its node has it."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from kafkalog_spark.kernels.primitives import load_u8, load_u64
from kafkalog_spark.typed.json.program import HASH, WORD_ARENA, WORD_LENGTH_BITS
from kafkalog_spark.typed.json.text_kernel import (
    ARENA_USED,
    BAD,
    DIGITS,
    EXPECTED_WIDTH,
    F_AT,
    F_LENGTH,
    F_NODE,
    F_WORD,
    FULL_DOMAIN,
    HIGHS,
    IN_ZONE,
    K_BOOLEAN,
    K_DATE,
    K_DECIMAL,
    K_DOUBLE,
    K_FLOAT,
    K_INTEGER,
    K_LOCAL,
    K_STRING,
    K_TIMESTAMP,
    LONGEST_EXPECTED,
    MASK_1,
    MASK_2,
    MAX_STRING,
    N_HIGH,
    N_LOW,
    NAME_BASE,
    NAME_KIND,
    NAME_LENGTH,
    NAME_NODE,
    NO_ROOM,
    NUMBERS_USED,
    OF_NODE,
    OF_SLOT,
    WORD_1,
    WORD_2,
    days_of,
    microseconds_of,
    names_a_zone,
    string_end,
    unescape,
)

MAX_NUMBER = 900
TENS = np.array([10.0**i for i in range(23)])
WHOLE_TENS = np.array([10**i for i in range(19)], np.int64)


@intrinsic
def _bits_of(typingctx, number):  # type: ignore[no-untyped-def]
    """The bits of a float64."""

    def generate(context, builder, sig, args):  # type: ignore[no-untyped-def]
        (value,) = args
        return builder.bitcast(value, ir.IntType(64))

    return types.int64(types.float64), generate


@njit(inline="always")
def _digits(data, at, end, number):  # type: ignore[no-untyped-def]
    """(The place after the digits from data[at] on, `number` with them at its end). Of more than 18 digits nobody asks
    for the number."""
    while at < end:
        digit = np.uint8(load_u8(data, at) - np.uint8(48))
        if digit > 9:
            break
        number = number * 10 + np.int64(digit)
        at += 1
    return at, number


@njit(inline="always")
def number_at(data, at, end):  # type: ignore[no-untyped-def]
    """A number at data[at:end] -> (where it ends or BAD, its digits as one whole number, how many these are without
    zeros in front, its power of ten, whether it is negative, whether it is a whole number)."""
    begin = at
    negative = load_u8(data, at) == 45
    if negative:
        at += 1
    digits, count, power, whole = np.int64(0), np.int64(0), np.int64(0), True
    first = at
    at, digits = _digits(data, at, end, digits)
    if at == first or (load_u8(data, first) == 48 and at - first > 1):
        return BAD, digits, count, power, negative, whole
    count = np.int64(0) if load_u8(data, first) == 48 else np.int64(at - first)
    if at < end and load_u8(data, at) == 46:
        whole = False
        at += 1
        first = at
        if count == 0:
            while at < end and load_u8(data, at) == 48:
                at += 1
        counted = at
        at, digits = _digits(data, at, end, digits)
        if at == first:
            return BAD, digits, count, power, negative, whole
        count += at - counted
        power = first - at
    if at < end and (load_u8(data, at) == 101 or load_u8(data, at) == 69):
        whole = False
        at += 1
        minus = at < end and load_u8(data, at) == 45
        if minus or (at < end and load_u8(data, at) == 43):
            at += 1
        first = at
        exponent = np.int64(0)
        while at < end and 48 <= load_u8(data, at) <= 57:
            if exponent < 100_000:
                exponent = exponent * 10 + (np.int64(load_u8(data, at)) - 48)
            at += 1
        if at == first:
            return BAD, digits, count, power, negative, whole
        power += -exponent if minus else exponent
    if at - begin > MAX_NUMBER:
        return BAD, digits, count, power, negative, whole
    return at, digits, count, power, negative, whole


@njit(inline="always")
def take_string(data, at, end, kind, target, place, nodes, words, valid, arena, state):  # type: ignore[no-untyped-def]
    """The string whose quote is at data[at] -> the place after it, or BAD for one that is left."""
    at += 1
    close, escapes = string_end(data, at, end)
    if close < 0:
        return BAD
    if target != 0:
        mark = np.uint8(1)
        if kind == K_STRING:
            if close - at > MAX_STRING:
                return BAD
            if escapes:
                to = state[ARENA_USED]
                state[ARENA_USED] = unescape(data, at, close, arena, to)
                words[place] = WORD_ARENA | (to << WORD_LENGTH_BITS) | (state[ARENA_USED] - to)
            else:
                words[place] = (at << WORD_LENGTH_BITS) | (close - at)
        elif kind == K_TIMESTAMP or kind == K_LOCAL:  # noqa: SIM109
            us, good = microseconds_of(data, at, close, kind == K_TIMESTAMP)
            if not good:
                return BAD
            words[place] = us
            if nodes[target, N_LOW] != 0 and not names_a_zone(data, at, close):
                mark = np.uint8(IN_ZONE)
        elif kind == K_DATE:
            days, good = days_of(data, at, close)
            if not good or close - at != 10:
                return BAD
            words[place] = days
        else:
            return BAD
        valid[place] = mark
    return close + 1


@njit(inline="always")
def take_number(data, at, end, kind, target, slot, place, nodes, words, valid, numbers, state):  # type: ignore[no-untyped-def]
    """The number at data[at] -> the place after it; BAD for one that is left, NO_ROOM where `numbers` is full."""
    close, digits, count, power, negative, whole = number_at(data, at, end)
    if close < 0:
        return BAD
    if target != 0:
        if kind == K_INTEGER:
            if negative:
                digits = -digits
            if not whole or count > 18 or digits < nodes[target, N_LOW] or digits > nodes[target, N_HIGH]:
                return BAD
            words[place] = digits
        elif kind == K_DOUBLE or kind == K_FLOAT:  # noqa: SIM109
            exact = count <= 15 if kind == K_DOUBLE else count <= 7
            most = 22 if kind == K_DOUBLE else 10
            if exact and -most <= power <= most:
                if kind == K_DOUBLE:
                    number = np.float64(digits)
                    number = number * TENS[power] if power >= 0 else number / TENS[-power]
                else:
                    small = np.float32(digits)
                    tens = np.float32(TENS[power if power >= 0 else -power])
                    small = np.float32(small * tens) if power >= 0 else np.float32(small / tens)
                    number = np.float64(small)
                if negative and not (whole and digits == 0):
                    number = -number
                words[place] = _bits_of(number)
            else:
                used = state[NUMBERS_USED]
                if used >= len(numbers):
                    state[FULL_DOMAIN] = BAD
                    return NO_ROOM
                numbers[used, OF_NODE], numbers[used, OF_SLOT], numbers[used, DIGITS] = (
                    target,
                    slot,
                    (at << 12) | (close - at),
                )
                state[NUMBERS_USED] = used + 1
        elif kind == K_DECIMAL:
            shift = power + nodes[target, N_LOW]
            if count > 18 or shift < 0 or shift > 18 or digits >= WHOLE_TENS[18 - shift]:
                return BAD
            digits *= WHOLE_TENS[shift]
            if nodes[target, N_HIGH] < 18 and digits >= WHOLE_TENS[nodes[target, N_HIGH]]:
                return BAD
            words[place] = -digits if negative else digits
        elif kind == K_TIMESTAMP:
            if not whole or count > 12:
                return BAD
            words[place] = (-digits if negative else digits) * 1_000_000
        elif kind == K_STRING:
            if not whole or count > 18 or (negative and digits == 0):
                return BAD
            words[place] = (at << WORD_LENGTH_BITS) | (close - at)
        else:
            return BAD
        valid[place] = 1
    return close


@njit(inline="always")
def _are(data, at, first, second, third):  # type: ignore[no-untyped-def]
    """True if these are the bytes from data[at] on."""
    return load_u8(data, at) == first and load_u8(data, at + 1) == second and load_u8(data, at + 2) == third


@njit(inline="always")
def take_word(data, at, end, kind, target, place, words, valid):  # type: ignore[no-untyped-def]
    """`true`, `false` or `null` at data[at] -> the place after it; BAD for one that is left."""
    byte = load_u8(data, at)
    size = 5 if byte == 102 else 4
    if at + size > end:
        return BAD
    if byte == 116:
        good = _are(data, at + 1, 114, 117, 101)
    elif byte == 110:
        good = _are(data, at + 1, 117, 108, 108)
    else:
        good = _are(data, at + 1, 97, 108, 115) and load_u8(data, at + 4) == 101
    if not good:
        return BAD
    if target != 0:
        if kind == K_BOOLEAN and byte != 110:
            words[place] = 1 if byte == 116 else 0
            valid[place] = 1
        elif kind == K_STRING and byte != 110:
            words[place] = (at << WORD_LENGTH_BITS) | size
            valid[place] = 1
        elif byte != 110:
            return BAD
    return at + size


# Names of objects: the field of a name, and names that are expected where they were in the last object.


@njit
def _word_of(data, at, length, end):  # type: ignore[no-untyped-def]
    """The first eight bytes of a name, the first one lowest."""
    if at + 8 <= end:
        word = load_u64(data, at)
        return word if length >= 8 else word & ((np.uint64(1) << np.uint64(8 * length)) - np.uint64(1))
    word = np.uint64(0)
    for i in range(min(length, 8)):
        word |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return word


@njit
def field_of(data, at, length, end, first, bits, fields, names):  # type: ignore[no-untyped-def]
    """The node of a name in a struct's hash table, 0 for a name that is not wanted."""
    word = _word_of(data, at, length, end)
    place = np.int64(((word ^ (np.uint64(length) << np.uint64(56))) * HASH) >> np.uint64(64 - bits))
    mask = (np.int64(1) << bits) - 1
    while True:
        row = first + place
        node = fields[row, F_NODE]
        if node == 0:
            return np.int64(0)
        if fields[row, F_LENGTH] == length and np.uint64(fields[row, F_WORD]) == word:
            begin = fields[row, F_AT]
            same = True
            for i in range(8, length):
                if names[begin + i] != data[at + i]:
                    same = False
                    break
            if same:
                return node
        place = (place + 1) & mask


@njit(inline="always")
def is_expected(data, at, end, expected, row):  # type: ignore[no-untyped-def]
    """True if data[at:end] is the name that is expected, the quote after it, and more. row: where its row begins."""
    length = expected[row + NAME_LENGTH]
    if length == 0 or at + length + 1 >= end or at + LONGEST_EXPECTED + 1 > len(data):
        return False
    if (load_u64(data, at) ^ np.uint64(expected[row + WORD_1])) & np.uint64(expected[row + MASK_1]) != 0:
        return False
    return length < 8 or (
        (load_u64(data, at + 8) ^ np.uint64(expected[row + WORD_2])) & np.uint64(expected[row + MASK_2]) == 0
    )


@njit(inline="always")
def row_of(known):  # type: ignore[no-untyped-def]
    """Where the row of an expected name begins: a uint64, which Numba takes as an index without a question."""
    return np.uint64(known * EXPECTED_WIDTH)


@njit
def _mask(count):  # type: ignore[no-untyped-def]
    """That many bytes of a word, as a mask."""
    if count <= 0:
        return np.int64(0)
    return np.int64(-1) if count >= 8 else (np.int64(1) << (8 * count)) - 1


@njit
def expect(data, at, length, target, kind, base, expected, row):  # type: ignore[no-untyped-def]
    """Expect this name next time, if it is short enough, and ASCII, so that nothing has to be looked at again."""
    expected[row + NAME_LENGTH] = 0
    if length == 0 or length > LONGEST_EXPECTED or at + LONGEST_EXPECTED + 1 > len(data):
        return
    first, second = load_u64(data, at), load_u64(data, at + 8)
    one, two = _mask(length + 1), _mask(length - 7)
    if (first & np.uint64(one) & HIGHS) != 0 or (second & np.uint64(two) & HIGHS) != 0:
        return
    expected[row + WORD_1], expected[row + MASK_1] = np.int64(first), one
    expected[row + WORD_2], expected[row + MASK_2] = np.int64(second), two
    expected[row + NAME_LENGTH], expected[row + NAME_NODE] = length, target
    expected[row + NAME_KIND], expected[row + NAME_BASE] = kind, base
