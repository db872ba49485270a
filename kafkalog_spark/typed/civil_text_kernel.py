"""Dates and timestamps as ISO 8601 texts, written by columns, compiled.

Every kernel takes n values and room for the bytes that n of them can take at most, and gives how many bytes there are;
offsets int64[n + 1] get where each begins.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

from kafkalog_spark.log.kernels.primitives import kernel_for
from kafkalog_spark.typed.pieces.pieces_kernel import BYTES_OUT, INT64, INT64_OUT

MAX_DATE = 16  # "-5877641-06-23", the first date of 32 bits
MAX_MOMENT = 40  # "-290308-12-21T19:59:05.224+00:53:28" has 37
_QUOTE, _ZERO, _MINUS, _PLUS, _POINT, _COLON, _T, _Z = (np.uint8(ord(c)) for c in '"0-+.:TZ')
_DAY_US = 86_400_000_000


@njit
def put_quote(out, to, quoted):  # type: ignore[no-untyped-def]
    """A quote, where one is wanted."""
    if not quoted:
        return to
    out[to] = _QUOTE
    return to + 1


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


@kernel_for(types.int64(INT64, types.boolean, BYTES_OUT, INT64_OUT))
def write_dates(days, quoted, out, offsets):  # type: ignore[no-untyped-def]
    """Dates, in quotes where `quoted`."""
    to = 0
    for i in range(days.size):
        offsets[i] = to
        to = _put_date(out, put_quote(out, to, quoted), days[i])
        to = put_quote(out, to, quoted)
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


@kernel_for(types.int64(INT64, INT64, types.boolean, types.boolean, BYTES_OUT, INT64_OUT))
def write_moments(local, seconds, zoned, quoted, out, offsets):  # type: ignore[no-untyped-def]
    """Timestamps to the millisecond, in quotes where `quoted`. local int64[n]: microseconds since 1970 on the place's
    clock; seconds int64[n], or one for all: what that clock is ahead of UTC, which is written where `zoned`."""
    to = 0
    for i in range(local.size):
        offsets[i] = to
        days = local[i] // _DAY_US
        of_day = local[i] - days * _DAY_US
        to = _put_date(out, put_quote(out, to, quoted), days)
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
        to = put_quote(out, to, quoted)
    offsets[local.size] = to
    return to
