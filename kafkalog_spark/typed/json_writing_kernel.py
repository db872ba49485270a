"""Leaves of JSON written by columns, compiled: texts in quotes, base64, dates and timestamps.

Every kernel takes n values and room for the bytes that n of them can take at most, and gives how many bytes there are;
offsets int64[n + 1] get where each begins.
"""

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
_QUOTE, _BACKSLASH, _U, _ZERO, _MINUS, _PLUS, _POINT, _EQUALS, _COLON, _T, _Z = (
    np.uint8(ord(c)) for c in '"\\u0-+.=:TZ'
)

MAX_DATE = 16  # "-5877641-06-23", the first date of 32 bits
MAX_MOMENT = 40  # "-290308-12-21T19:59:05.224+00:53:28" has 37

_DAY_US = 86_400_000_000


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


@njit
def put_digits(out, to, number, width):  # type: ignore[no-untyped-def]
    """A number that is not negative, with so many digits."""
    for k in range(width):
        out[to + width - 1 - k] = np.uint8(_ZERO + number % 10)
        number //= 10
    return to + width


@njit
def digits_of(number):  # type: ignore[no-untyped-def]
    count = 1
    while number >= 10:
        number //= 10
        count += 1
    return count


@njit
def _put_date(out, to, days):  # type: ignore[no-untyped-def]
    """YYYY-MM-DD of days since 1970, with a sign outside of the years 0 to 9999 (java.time's SignStyle.EXCEEDS_PAD).
    The calendar's eras of 400 years begin in March of year 0."""
    since = days + 719_468
    era = since // 146_097
    of_era = since - era * 146_097
    years = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * years + years // 4 - years // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year = years + era * 400 + (1 if month <= 2 else 0)
    if year < 0 or year > 9999:
        out[to] = _MINUS if year < 0 else _PLUS
        to += 1
        year = abs(year)
    to = put_digits(out, to, year, max(4, digits_of(year)))
    out[to] = _MINUS
    to = put_digits(out, to + 1, month, 2)
    out[to] = _MINUS
    return put_digits(out, to + 1, day, 2)


@kernel_for(types.int64(INT64, BYTES_OUT, INT64_OUT))
def write_dates(days, out, offsets):  # type: ignore[no-untyped-def]
    """Dates in quotes."""
    to = 0
    for i in range(days.size):
        offsets[i] = to
        out[to] = _QUOTE
        to = _put_date(out, to + 1, days[i])
        out[to] = _QUOTE
        to += 1
    offsets[days.size] = to
    return to


@njit
def _put_zone(out, to, seconds):  # type: ignore[no-untyped-def]
    """Hours, minutes, and seconds where there are some; Z for UTC (DateTimeFormatterBuilder.appendOffsetId)."""
    if seconds == 0:
        out[to] = _Z
        return to + 1
    ahead = abs(seconds)
    out[to] = _MINUS if seconds < 0 else _PLUS
    to = put_digits(out, to + 1, ahead // 3600, 2)
    out[to] = _COLON
    to = put_digits(out, to + 1, ahead // 60 % 60, 2)
    if ahead % 60 == 0:
        return to
    out[to] = _COLON
    return put_digits(out, to + 1, ahead % 60, 2)


@kernel_for(types.int64(INT64, INT64, types.boolean, BYTES_OUT, INT64_OUT))
def write_moments(local, seconds, zoned, out, offsets):  # type: ignore[no-untyped-def]
    """Timestamps in quotes, to the millisecond: local int64[n]: microseconds since 1970 on the clock of the place;
    seconds int64[n], or one for all: what that clock is ahead of UTC, which is written where `zoned`."""
    to = 0
    for i in range(local.size):
        offsets[i] = to
        out[to] = _QUOTE
        days = local[i] // _DAY_US
        of_day = local[i] - days * _DAY_US
        to = _put_date(out, to + 1, days)
        out[to] = _T
        to = put_digits(out, to + 1, of_day // 3_600_000_000, 2)
        out[to] = _COLON
        to = put_digits(out, to + 1, of_day // 60_000_000 % 60, 2)
        out[to] = _COLON
        to = put_digits(out, to + 1, of_day // 1_000_000 % 60, 2)
        out[to] = _POINT
        to = put_digits(out, to + 1, of_day // 1000 % 1000, 3)
        if zoned:
            to = _put_zone(out, to, seconds[i if seconds.size > 1 else 0])
        out[to] = _QUOTE
        to += 1
    offsets[local.size] = to
    return to
