"""Texts of JSON: white space, where a string ends, its escapes, whether bytes are UTF-8."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from kafkalog_spark.log.kernels.primitives import load_u8, load_u64
from kafkalog_spark.typed.json_fields import BAD

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
    """Whether data[at:end] is ASCII."""
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
    """Whether data[at:end] is UTF-8, without surrogates and overlong forms."""
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
