"""Texts of JSON: white space, where a string ends, its escapes, whether bytes are UTF-8."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from kafkalog_spark.log.kernels.primitives import load_u64
from kafkalog_spark.typed.json_fields import BAD

ONES = np.uint64(0x0101010101010101)
HIGHS = np.uint64(0x8080808080808080)
QUOTES = np.uint64(0x2222222222222222)
SLASHES = np.uint64(0x5C5C5C5C5C5C5C5C)
SPACES = np.uint64(0x2020202020202020)


@intrinsic
def _low_zeros(typingctx, word):  # type: ignore[no-untyped-def]
    """How many of the lowest bits of a uint64 that is not 0 are 0."""

    def generate(context, builder, sig, args):  # type: ignore[no-untyped-def]
        (bits,) = args
        return builder.cttz(bits, ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


@njit(inline="always")
def space(data, at, end):  # type: ignore[no-untyped-def]
    """The place of the next byte that is not white space."""
    while at < end and (data[at] == 32 or data[at] == 10 or data[at] == 13 or data[at] == 9):
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
        digit = _hex(data[at + i])
        if digit < 0:
            return BAD
        code = code * 16 + digit
    return BAD if 0xD800 <= code < 0xE000 else code


@njit(inline="always")
def string_end(data, at, end):  # type: ignore[no-untyped-def]
    """From after a quote -> (the place of the closing one or BAD, whether there are escapes, bits of other bytes than
    ASCII, maybe of some that follow)."""
    other = np.uint64(0)
    escapes = False
    while True:
        found = False
        while at + 8 <= end:
            word = load_u64(data, at)
            other |= word
            quotes = word ^ QUOTES
            slashes = word ^ SLASHES
            special = (((quotes - ONES) & ~quotes) | ((slashes - ONES) & ~slashes) | ((word - SPACES) & ~word)) & HIGHS
            if special != 0:
                at += _low_zeros(special) >> 3
                found = True
                break
            at += 8
        if not found:
            while at < end and data[at] != 34 and data[at] != 92 and data[at] >= 32:
                other |= np.uint64(data[at])
                at += 1
            if at >= end:
                return BAD, escapes, other
        byte = data[at]
        if byte == 34:
            return at, escapes, other
        if byte != 92 or at + 1 >= end:
            return BAD, escapes, other
        escapes = True
        byte = data[at + 1]
        if byte == 117:
            if _code(data, at + 2, end) < 0:
                return BAD, escapes, other
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
            return BAD, escapes, other


@njit
def unescape(data, at, end, arena, to):  # type: ignore[no-untyped-def]
    """Write a string with escapes, which string_end has found good, to arena[to:]; where it ends there."""
    while at < end:
        byte = data[at]
        if byte != 92:
            arena[to] = byte
            at += 1
            to += 1
            continue
        byte = data[at + 1]
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
    """Whether data[at:end] is UTF-8, without surrogates and overlong forms."""
    while at < end:
        if at + 8 <= end and load_u64(data, at) & HIGHS == 0:
            at += 8
            continue
        byte = data[at]
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
        if at + more >= end or data[at + 1] < low or data[at + 1] > high:
            return False
        for i in range(2, more + 1):
            if data[at + i] & 0xC0 != 0x80:
                return False
        at += more + 1
    return True
