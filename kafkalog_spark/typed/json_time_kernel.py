"""Dates and timestamps in strings of JSON, of the forms that are most frequent; all others are left."""

from __future__ import annotations

import numpy as np
from numba import njit

from kafkalog_spark.log.kernels.primitives import load_u8
from kafkalog_spark.typed.json_fields import BAD


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
    """Whether a timestamp that microseconds_of has read ends in Z or an offset."""
    if end - at <= 19:
        return False
    return load_u8(data, end - 1) == 90 or load_u8(data, end - 6) == 43 or load_u8(data, end - 6) == 45
