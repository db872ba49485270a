"""Dates and timestamps of JSON strings in compiled code, in their most frequent forms.

The functions read `data` uint8[:] from position `at` to `end`.
"""

from __future__ import annotations

import numpy as np

from kafkalog_spark.kernels.primitives import helper, load_u8
from kafkalog_spark.typed.json.string_kernel import DEFERRED, Char, is_digit


@helper
def _two_digits(data, at):  # type: ignore[no-untyped-def]
    high, low = np.int64(load_u8(data, at)) - Char.ZERO, np.int64(load_u8(data, at + 1)) - Char.ZERO
    return high * 10 + low if 0 <= high <= 9 and 0 <= low <= 9 else DEFERRED


@helper
def days_of(data, at, end):  # type: ignore[no-untyped-def]
    """Read a date YYYY-MM-DD at the beginning of data[at:end] -> (days since 1970, whether it is a date)."""
    no_result = np.int64(0)
    if end - at < 10 or load_u8(data, at + 4) != Char.MINUS or load_u8(data, at + 7) != Char.MINUS:
        return no_result, False
    century, rest = _two_digits(data, at), _two_digits(data, at + 2)
    month, day = _two_digits(data, at + 5), _two_digits(data, at + 8)
    if century < 0 or rest < 0 or month < 1 or month > 12 or day < 1:
        return no_result, False
    year = century * 100 + rest
    month_days = 31
    if month == 2:
        month_days = 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    elif month == 4 or month == 6 or month == 9 or month == 11:
        month_days = 30
    if day > month_days:
        return no_result, False
    if month <= 2:
        year -= 1
        month += 12
    era = year // 400
    year_of_era = year - era * 400
    day_of_year = (153 * (month - 3) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468, True


@helper
def _minutes_of(data, at, last_hour):  # type: ignore[no-untyped-def]
    """Return the time HH:MM at data[at] in minutes; DEFERRED if it is not a time."""
    hour, minute = _two_digits(data, at), _two_digits(data, at + 3)
    if hour < 0 or hour > last_hour or minute < 0 or minute > 59 or load_u8(data, at + 2) != Char.COLON:
        return DEFERRED
    return hour * 60 + minute


@helper
def microseconds_of(data, at, end, zoned):  # type: ignore[no-untyped-def]
    """Read the timestamp data[at:end] -> (microseconds since 1970, whether it has one of the most frequent forms).

    Such a form is a date, optionally followed by T or a space, HH:MM:SS and a fraction, and if `zoned` is true by Z or
    an offset of hours and minutes. A time without an offset is read as UTC.
    """
    days, is_date = days_of(data, at, end)
    no_result = np.int64(0)
    if not is_date:
        return no_result, False
    us = days * 86_400_000_000
    at += 10
    if at == end:
        return us, True
    if end - at < 9 or load_u8(data, at + 6) != Char.COLON:
        return no_result, False
    if load_u8(data, at) != Char.UPPER_T and load_u8(data, at) != Char.SPACE:
        return no_result, False
    minutes, second = _minutes_of(data, at + 1, 23), _two_digits(data, at + 7)
    if minutes < 0 or second < 0 or second > 59:
        return no_result, False
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
        return no_result, False
    sign = load_u8(data, at)
    if sign == Char.UPPER_Z and at + 1 == end:
        return us, True
    if (sign != Char.PLUS and sign != Char.MINUS) or end - at != 6:
        return no_result, False
    minutes = _minutes_of(data, at + 1, 17)
    if minutes < 0:
        return no_result, False
    offset = minutes * 60_000_000
    return (us - offset if sign == Char.PLUS else us + offset), True


@helper
def has_zone(data, at, end):  # type: ignore[no-untyped-def]
    """Return whether a timestamp that `microseconds_of` accepted ends with Z or an offset."""
    if end - at <= 19:
        return False
    sign = load_u8(data, end - 6)
    return load_u8(data, end - 1) == Char.UPPER_Z or sign == Char.PLUS or sign == Char.MINUS
