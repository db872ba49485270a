"""Dates and times as Spark reads them from text: DateTimeUtils.stringToDate and stringToTimestamp, and those patterns
of timestampFormat and dateFormat that have one meaning.

Values are days and microseconds since 1970-01-01 in the proleptic Gregorian calendar, for the years -9999999 to
9999999.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import cache, lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import numpy as np

DAY_US = 86_400_000_000
_FIRST_GREGORIAN = -141_427  # 1582-10-15
_JULIAN_DAY_OF_1970 = 2_440_588
_DAYS_BEFORE, _YEARS_BEFORE = 32_082, 4800  # from March of the Julian year -4800 to the first Julian day
_TRIMMED = "".join(map(chr, [*range(33), 127]))
_ERA_DAYS, _ORDINAL_OF_1970 = 146_097, 719_163
_SHORT_IDS = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh", "EST": "-05:00", "MST": "-07:00", "HST": "-10:00",
}  # fmt: skip
"""java.time.ZoneId.SHORT_IDS."""
_OFFSET = re.compile(r"([+-])(\d{1,2})(?::?(\d\d)(?::?(\d\d))?)?", re.ASCII)
_OFFSET_FORMS = re.compile(r"[+-](\d|\d\d|\d\d:\d\d|\d{4}|\d\d:\d\d:\d\d|\d{6})", re.ASCII)


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


@cache
def zone_of(name: str) -> tzinfo:
    """A time zone by a name that Spark takes (DateTimeUtils.getZoneId). Raises ValueError."""
    name = re.sub(r"(\+|-)(\d):", r"\g<1>0\2:", name, count=1)
    name = re.sub(r"(\+|-)(\d\d):(\d)$", r"\1\2:0\3", name, count=1)
    name = _SHORT_IDS.get(name, name)
    if name == "Z":
        return UTC
    if name[:1] in ("+", "-"):
        return _fixed(name)
    for prefix in ("UTC", "GMT", "UT"):
        rest = name.removeprefix(prefix)
        if rest != name:
            if not rest:
                return UTC
            if rest[0] in "+-":
                return _fixed(rest)
    if name not in available_timezones():
        raise ValueError(f"there is no time zone '{name}'")
    try:
        zone = ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ValueError(f"there is no time zone '{name}'") from error
    return zone if zone.utcoffset(None) != timedelta(0) else UTC  # Etc/UTC, GMT0 and the like never differ from it


def _fixed(text: str) -> tzinfo:
    found = _OFFSET.fullmatch(text)
    if found is None or not _OFFSET_FORMS.fullmatch(text):
        raise ValueError(f"'{text}' is no offset from UTC")
    hours, minutes, seconds = (int(part or 0) for part in found.groups()[1:])
    if minutes > 59 or seconds > 59 or hours * 3600 + minutes * 60 + seconds > 18 * 3600:
        raise ValueError(f"'{text}' is no offset from UTC")
    offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return timezone(-offset if found[1] == "-" else offset)


def us_of_local(days: int, us: int, zone: tzinfo) -> int:
    """Microseconds since 1970 UTC of a local date and time, by ZonedDateTime.of: of two the earlier one, in a gap as
    much later as that is long."""
    local = days * DAY_US + us
    if zone is UTC:
        return local
    # zones repeat with the calendar; datetime has the years 1 to 9999
    eras = min((days + 719_000) // _ERA_DAYS, 0) + max((days - 2_300_000) // _ERA_DAYS, 0)
    moment = datetime(1970, 1, 1) + timedelta(days=days - eras * _ERA_DAYS, microseconds=us)
    offset = moment.replace(tzinfo=zone).utcoffset()
    assert offset is not None
    return local - int(offset / timedelta(microseconds=1))


def us_of_locals(us: np.ndarray, zone: tzinfo) -> np.ndarray:
    """us_of_local of microseconds since 1970 of local times, int64[n]. A day on which the clocks are not changed is
    asked for once: no zone changes them twice within one."""
    days, of = np.unique(us // DAY_US, return_inverse=True)
    found = [_ahead_on(int(day), zone) for day in days]
    utc: np.ndarray = us - np.array([ahead or 0 for ahead in found], np.int64)[of]
    for i in np.flatnonzero(np.array([ahead is None for ahead in found])[of]):
        utc[i] = us_of_local(*divmod(int(us[i]), DAY_US), zone)
    return utc


@lru_cache(1 << 16)
def _ahead_on(day: int, zone: tzinfo) -> int | None:
    """By how many microseconds a zone's clocks are ahead of UTC on a local day; None: they are changed on it."""
    first, last = (day * DAY_US + us - us_of_local(day, us, zone) for us in (0, DAY_US - 1))
    return first if first == last else None


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


_FIELDS = {
    "MM": r"(?P<month>\d\d)",
    "dd": r"(?P<day>\d\d)",
    "HH": r"(?P<hour>\d\d)",
    "mm": r"(?P<minute>\d\d)",
    "ss": r"(?P<second>\d\d)",
    "XXX": r"(?P<zone>Z|[+-]\d\d:\d\d)",
}
_YEAR = r"(?P<year>\d{{4}}|-(?!0+{0})\d{{4,19}}|\+\d{{5,19}}){0}"
"""yyyy, of which Spark makes uuuu: all digits but those of the fields that follow at once; more than four have a sign
(SignStyle.EXCEEDS_PAD)."""
_ADJACENT = re.compile(r"(?:MM|dd|HH|mm|ss)*(?:S(?!S))?")
"""Fields of as many digits as letters that follow at once; a fraction of several letters is of as many at most."""
_PATTERN_PART = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|([^A-Za-z'])", re.DOTALL)


def pattern_reader(pattern: str) -> Callable[[str], tuple[int, int, tzinfo | None]]:
    """A function from a text to (days, microseconds of the day, the zone that is named), for a pattern of Java's
    DateTimeFormatter made of yyyy MM dd HH mm ss S... XXX, quoted letters and signs.

    Raises ValueError for any other pattern; the function does for texts that do not fit.
    """
    parts, digits = [], 0
    for part in _PATTERN_PART.finditer(pattern):
        quoted, letter, sign = part.groups()
        if quoted is not None:
            parts.append(re.escape(quoted.replace("''", "'") or "'"))
        elif sign is not None:
            if sign in "[]{}#":
                raise ValueError(f"the pattern '{pattern}' has '{sign}'")
            parts.append(re.escape(sign))
        elif letter == "S" and len(part[0]) <= 9 and not digits:
            digits = len(part[0])
            parts.append(rf"(?P<fraction>\d{{1,{digits}}})")  # as many at most: Spark's variable length
        elif part[0] == "yyyy":
            after = len(_ADJACENT.match(pattern, part.end())[0])  # type: ignore[index]
            parts.append(_YEAR.format(rf"(?=\d{{{after}}}(?!\d))"))
        elif part[0] in _FIELDS:
            parts.append(_FIELDS[part[0]])
        else:
            raise ValueError(f"the pattern '{pattern}' has '{part[0]}'")
    if "".join(part[0] for part in _PATTERN_PART.finditer(pattern)) != pattern:
        raise ValueError(f"the pattern '{pattern}' has a quote that does not end")
    try:
        expression = re.compile("".join(parts), re.ASCII | re.IGNORECASE)
    except re.error:
        raise ValueError(f"the pattern '{pattern}' names a field twice") from None
    if not {"year", "month", "day"} <= expression.groupindex.keys():
        raise ValueError(f"the pattern '{pattern}' does not say year, month and day")

    def read(text: str) -> tuple[int, int, tzinfo | None]:
        found = expression.fullmatch(text)
        if found is None:
            raise ValueError(f"it is not of the form {pattern}")
        got = found.groupdict()
        days = _days_in_range(days_of(int(got["year"]), int(got["month"]), int(got["day"])))
        fraction = (got.get("fraction") or "")[:6].ljust(6, "0")
        hour, minute, second = (int(got.get(name) or 0) for name in ("hour", "minute", "second"))
        us = time_us(hour, minute, second, int(fraction))
        zone = got.get("zone")
        return days, us, None if zone is None else zone_of(zone.upper())

    return read
