"""Dates and times as Spark reads them from text: DateTimeUtils.stringToDate and stringToTimestamp, and those patterns
of timestampFormat and dateFormat that have one meaning.

Values are days and microseconds since 1970-01-01 in the proleptic Gregorian calendar, for the years -9999999 to
9999999.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, tzinfo

from kafkalog_spark.typed.columns.time_zones import _ERA_DAYS, _ORDINAL_OF_1970, us_of_local, zone_of

_FIRST_GREGORIAN = -141_427  # 1582-10-15
_JULIAN_DAY_OF_1970 = 2_440_588
_DAYS_BEFORE, _YEARS_BEFORE = 32_082, 4800  # from March of the Julian year -4800 to the first Julian day
_TRIMMED = "".join(map(chr, [*range(33), 127]))


def days_of(year: int, month: int, day: int) -> int:
    """Days since 1970. Raises ValueError for a date that there is not."""
    era, of_era = divmod(year, 400)  # datetime has the years 1 to 9999
    try:
        return date(400 + of_era, month, day).toordinal() - _ORDINAL_OF_1970 + (era - 1) * _ERA_DAYS
    except ValueError:
        raise ValueError(f"there is no date {year}-{month}-{day}") from None


def days_of_hybrid(days: int) -> int:
    """Days since 1970 of the date that a calendar with Julian dates before 1582-10-15 has at `days`
    (RebaseDateTime.rebaseJulianToGregorianDays)."""
    if days >= _FIRST_GREGORIAN:
        return days
    # by the Julian day number, in years that begin in March, four of which are 1,461 days (Richards' algorithm)
    since = days + _JULIAN_DAY_OF_1970 + _DAYS_BEFORE
    years = (4 * since + 3) // 1461
    of_year = since - 1461 * years // 4
    months = (5 * of_year + 2) // 153
    day = of_year - (153 * months + 2) // 5 + 1
    year, month = years - _YEARS_BEFORE + months // 10, months + 3 - 12 * (months // 10)
    return days_of(year, month, 1) + day - 1


def time_us(hour: int, minute: int, second: int, us: int) -> int:
    """Microseconds of a day. Raises ValueError for a time that there is not."""
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"there is no time {hour}:{minute}:{second}")
    return ((hour * 60 + minute) * 60 + second) * 1_000_000 + us


def date_of_text(text: str) -> int:
    """DateTimeUtils.stringToDate: days of yyyy, yyyy-[m]m, yyyy-[m]m-[d]d and ` ...` or `T...`. Raises ValueError."""
    found = _DATE.fullmatch(text.strip(_TRIMMED))
    if found is None:
        raise ValueError("no date")
    sign, year, month, day = found.groups()
    return _days_in_range(days_of(int(f"{sign or ''}{year}"), int(month or 1), int(day or 1)))


def _days_in_range(days: int) -> int:
    if not -(1 << 31) <= days < 1 << 31:
        raise ValueError("the date does not fit days in 32 bits")
    return days


_DATE = re.compile(r"([+-])?(\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_TIME = r"(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?(.*)?)?)?"
_TIMESTAMP = re.compile(rf"([+-])?(\d{{4,6}})(?:-(\d{{1,2}})(?:-(\d{{1,2}})(?:[ T]{_TIME})?)?)?", re.ASCII | re.DOTALL)
_JUST_TIME = re.compile(rf"(T)?{_TIME}", re.ASCII | re.DOTALL)


def timestamp_of_text(text: str, zone: tzinfo, *, with_zone: bool = True) -> int:
    """DateTimeUtils.stringToTimestamp: microseconds; `zone`: of texts that name none. with_zone=False: a local time
    without a zone (stringToTimestampWithoutTimeZone), where one that is named is an error. A time alone is of today.
    Raises ValueError."""
    text = text.strip(_TRIMMED)
    found = _TIMESTAMP.fullmatch(text)
    if found is not None:
        sign, year, month, day, hour, minute, second, fraction, named = found.groups()
        if hour is not None and (minute is None or second is None):
            # Spark takes hours, and hours and minutes, but no zone after them
            named = None
    else:
        just_time = _JUST_TIME.fullmatch(text)
        if just_time is None or not (just_time[1] or just_time[3]) or not with_zone:
            raise ValueError("no timestamp")
        hour, minute, second, fraction, named = just_time.groups()[1:]
        sign = year = month = day = None
    where = zone_of(named.strip(_TRIMMED)) if named else zone
    if named and not with_zone:
        raise ValueError("a time zone where none is allowed")
    us = time_us(int(hour or 0), int(minute or 0), int(second or 0), int((fraction or "0")[:6].ljust(6, "0")))
    if year is None:
        today = datetime.now(where)
        days = days_of(today.year, today.month, today.day)
    else:
        days = days_of(int(f"{sign or ''}{year}"), int(month or 1), int(day or 1))
    return us_in_range(us_of_local(days, us, where if with_zone else UTC))


def us_in_range(us: int) -> int:
    if not -(1 << 63) <= us < 1 << 63:
        raise ValueError("the timestamp does not fit microseconds in 64 bits")
    return us
