"""Dates and times of day as days and microseconds since 1970-01-01 in the proleptic Gregorian calendar.

`datetime` supports only the years 1 to 9999, so dates are computed in the equivalent year of one 400-year cycle (an
era). Callers parse years from -9999999 to 9999999.
"""

from __future__ import annotations

from datetime import date

DAY_US = 86_400_000_000
ERA_DAYS = 146_097  # days of 400 years, after which the calendar repeats
_ORDINAL_OF_1970 = 719_163
_FIRST_GREGORIAN_DAY = -141_427  # 1582-10-15
_JULIAN_DAY_OF_1970 = 2_440_588
_YEARS_BEFORE_YEAR_0 = 4800  # from the Julian year -4800, with which Richards' algorithm begins
_DAYS_BEFORE_JULIAN_DAY_0 = 32_082  # from 1 March of that year


def gregorian_days(year: int, month: int, day: int) -> int:
    """Return the days since 1970 of a date. Raises ValueError if the date does not exist."""
    era, year_of_era = divmod(year, 400)
    try:
        return date(400 + year_of_era, month, day).toordinal() - _ORDINAL_OF_1970 + (era - 1) * ERA_DAYS
    except ValueError:
        raise ValueError(f"there is no date {year}-{month}-{day}") from None


def checked_days(days: int) -> int:
    """Return `days`. Raises ValueError if it does not fit the 32 bits of Spark's date."""
    if not -(1 << 31) <= days < 1 << 31:
        raise ValueError("the date is out of range: Spark's date has 32 bits of days")
    return days


def gregorian_days_of_hybrid_days(days: int) -> int:
    """Convert days since 1970 of the hybrid calendar, which is Julian before 1582-10-15, to Gregorian days.

    The written date stays the same (`RebaseDateTime.rebaseJulianToGregorianDays`).
    """
    if days >= _FIRST_GREGORIAN_DAY:
        return days
    # Richards' algorithm. Its origin is March of the Julian year -4800; years begin in March, and four have 1,461 days.
    days_since_origin = days + _JULIAN_DAY_OF_1970 + _DAYS_BEFORE_JULIAN_DAY_0
    years = (4 * days_since_origin + 3) // 1461
    day_of_year = days_since_origin - 1461 * years // 4
    months = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * months + 2) // 5 + 1
    year, month = years - _YEARS_BEFORE_YEAR_0 + months // 10, months + 3 - 12 * (months // 10)
    return gregorian_days(year, month, 1) + day - 1


def time_us(hour: int, minute: int, second: int, us: int) -> int:
    """Return the microseconds since midnight. Raises ValueError if the time does not exist."""
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"there is no time {hour}:{minute}:{second}")
    return ((hour * 60 + minute) * 60 + second) * 1_000_000 + us


def checked_us(us: int) -> int:
    """Return `us`. Raises ValueError if it does not fit the 64 bits of Spark's timestamp."""
    if not -(1 << 63) <= us < 1 << 63:
        raise ValueError("the timestamp is out of range: Spark's timestamp has 64 bits of microseconds")
    return us
