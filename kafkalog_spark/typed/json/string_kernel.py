"""Characters and strings of JSON in compiled code: white space, the end of a string, escapes.

The functions read `data` uint8[:] from position `at` to `end`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kafkalog_spark.kernels.primitives import byte_pointer, helper, inlined, load_u8

DEFERRED = np.int64(-1)  # instead of a position or number: the fallback decodes the value


class Char(IntEnum):
    """Characters with a meaning in JSON, a number, a date or a timestamp."""

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


LANES = 32  # bytes that are compared at once
_ESCAPED = np.zeros(256, np.uint8)
"""By the character after a backslash: the character that the escape stands for, or 0 for an invalid escape."""
_ESCAPED[list(b'"\\/bfnrt')] = list(b'"\\/\b\f\n\r\t')
_HEX = np.full(256, -1, np.int64)
_HEX[list(b"0123456789abcdefABCDEF")] = [*range(16), *range(10, 16)]


@intrinsic
def _trailing_zeros(typingctx, word):  # type: ignore[no-untyped-def]
    """Return the number of trailing zero bits of a uint64 that is not 0."""

    def generate(context, builder, sig, args):  # type: ignore[no-untyped-def]
        (bits,) = args
        return builder.cttz(bits, ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


def _lanes(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """Return LANES bytes of a buffer as a vector, and a function that makes a vector of equal numbers."""
    vector = ir.VectorType(ir.IntType(8), LANES)
    (buffer, at), (kind, _) = args, sig.args
    address = byte_pointer(context, builder, kind, buffer, at)
    loaded = builder.load(builder.bitcast(address, vector.as_pointer()), align=1)
    return loaded, lambda number: ir.Constant(vector, [int(number)] * LANES)


def _as_bits(builder: Any, truths: Any) -> Any:
    """Return a vector of booleans as a uint64; bit 0 is the first."""
    return builder.zext(builder.bitcast(truths, ir.IntType(LANES)), ir.IntType(64))


@intrinsic
def _special(typingctx, buffer, at):  # type: ignore[no-untyped-def]
    """Return which of the LANES bytes at buffer[at:] are quotes, backslashes or control characters.

    Bit 0 belongs to the first byte. Bounds are not checked.
    """

    def generate(context, builder, sig, args):  # type: ignore[no-untyped-def]
        loaded, all_of = _lanes(context, builder, sig, args)
        special = builder.icmp_unsigned("==", loaded, all_of(Char.QUOTE))
        special = builder.or_(special, builder.icmp_unsigned("==", loaded, all_of(Char.BACKSLASH)))
        special = builder.or_(special, builder.icmp_unsigned("<", loaded, all_of(Char.SPACE)))
        return _as_bits(builder, special)

    return types.uint64(buffer, types.int64), generate


@intrinsic
def _not_ascii(typingctx, buffer, at):  # type: ignore[no-untyped-def]
    """Return which of the LANES bytes at buffer[at:] are not ASCII, in the form of `_special`."""

    def generate(context, builder, sig, args):  # type: ignore[no-untyped-def]
        loaded, all_of = _lanes(context, builder, sig, args)
        return _as_bits(builder, builder.icmp_signed("<", loaded, all_of(0)))

    return types.uint64(buffer, types.int64), generate


@inlined
def is_ascii(data, at, end):  # type: ignore[no-untyped-def]
    """Return whether data[at:end] is ASCII."""
    while at + LANES <= end:
        if _not_ascii(data, at) != 0:
            return False
        at += LANES
    if at < end and at + LANES <= len(data):  # bytes at or after `end` are loaded and masked
        return _not_ascii(data, at) & ((np.uint64(1) << np.uint64(end - at)) - np.uint64(1)) == 0
    while at < end:
        if load_u8(data, at) >= 0x80:
            return False
        at += 1
    return True


@inlined
def skip_space(data, at, end):  # type: ignore[no-untyped-def]
    """Return the position of the first byte that is not white space, or `end`."""
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
    """Return the number of four hexadecimal digits; DEFERRED for other characters and for surrogates."""
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
    """Find the end of a string whose opening quote is before `at`.

    Returns (position of the closing quote or DEFERRED, whether the string has escapes).
    """
    escapes = False
    while True:
        special = np.uint64(0)
        while at + LANES <= len(data) and at < end:  # bytes at or after `end` may be loaded; checked below
            special = _special(data, at)
            if special != 0:
                at += _trailing_zeros(special)
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
    """Write the string data[at:end] to out[to:], uint8[:], with its escapes replaced; return the end in `out`.

    `string_end` must have validated the escapes.
    """
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
