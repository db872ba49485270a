"""Texts and bytes in JSON, written by columns, compiled: quotes and escapes, base64."""

from __future__ import annotations

import numpy as np
from numba import njit, types

from kafkalog_spark.log.kernels.primitives import copy_bytes, kernel_for
from kafkalog_spark.typed.pieces.pieces_kernel import BYTES, BYTES_OUT, INT64, INT64_OUT

ESCAPES = np.zeros(256, np.uint8)
"""What follows the backslash of a byte that is escaped: a letter, `u` for four digits, 0 for a byte that is not."""
ESCAPES[:32] = ord("u")
for _byte, _letter in zip(b'"\\\b\t\n\f\r', b'"\\btnfr', strict=True):
    ESCAPES[_byte] = _letter
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_QUOTE, _BACKSLASH, _U, _ZERO, _EQUALS = (np.uint8(ord(c)) for c in '"\\u0=')


@kernel_for(types.void(BYTES, INT64, BYTES, INT64_OUT))
def quoted_sizes(data, offsets, escapes, sizes):  # type: ignore[no-untyped-def]
    """Bytes of each text with its quotes and escapes, int64[n]."""
    for i in range(sizes.size):
        more = 2
        for at in range(offsets[i], offsets[i + 1]):
            escape = escapes[data[at]]
            if escape:
                more += 5 if escape == _U else 1
        sizes[i] = offsets[i + 1] - offsets[i] + more


@njit
def _put_escaped(out, to, byte, escapes):  # type: ignore[no-untyped-def]
    escape = escapes[byte]
    if not escape:
        out[to] = byte
        return to + 1
    out[to] = _BACKSLASH
    out[to + 1] = escape
    if escape != _U:
        return to + 2
    out[to + 2] = _ZERO
    out[to + 3] = _ZERO
    out[to + 4] = _HEX[byte >> 4]
    out[to + 5] = _HEX[byte & 15]
    return to + 6


@kernel_for(types.void(BYTES, INT64, BYTES, BYTES_OUT, INT64))
def write_quoted(data, offsets, escapes, out, places):  # type: ignore[no-untyped-def]
    """Each text in quotes; places int64[n + 1]: where, by quoted_sizes."""
    for i in range(places.size - 1):
        size = offsets[i + 1] - offsets[i]
        to = places[i]
        out[to] = _QUOTE
        to += 1
        if places[i + 1] - places[i] == size + 2:
            copy_bytes(out, to, data, offsets[i], size)
            to += size
        else:
            for at in range(offsets[i], offsets[i + 1]):
                to = _put_escaped(out, to, data[at], escapes)
        out[to] = _QUOTE


@kernel_for(types.void(BYTES, INT64, BYTES_OUT, INT64))
def write_base64(data, offsets, out, places):  # type: ignore[no-untyped-def]
    """Each run of bytes as base64 with padding, in quotes; places int64[n + 1]: where."""
    for i in range(places.size - 1):
        to = places[i]
        out[to] = _QUOTE
        to += 1
        at, end = offsets[i], offsets[i + 1]
        while at < end:
            some = min(3, end - at)
            bits = np.int64(0)
            for k in range(3):
                bits = bits << 8 | (np.int64(data[at + k]) if k < some else 0)
            for k in range(4):
                out[to + k] = _BASE64[bits >> (18 - 6 * k) & 63] if k <= some else _EQUALS
            at += 3
            to += 4
        out[to] = _QUOTE
