"""Time zones by the names that Spark accepts, and conversion of local times to UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache, lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import numpy as np

from kafkalog_spark.typed.columns.gregorian import DAY_US, ERA_DAYS

_SHORT_IDS = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh", "EST": "-05:00", "MST": "-07:00", "HST": "-10:00",
}  # fmt: skip
"""Names by short ID, from java.time.ZoneId.SHORT_IDS."""
_OFFSET = re.compile(r"([+-])(\d{1,2})(?::?(\d\d)(?::?(\d\d))?)?", re.ASCII)
_OFFSET_FORMS = re.compile(r"[+-](\d|\d\d|\d\d:\d\d|\d{4}|\d\d:\d\d:\d\d|\d{6})", re.ASCII)


@cache
def zone_of(name: str) -> tzinfo:
    """Return the time zone of a name that Spark accepts (`DateTimeUtils.getZoneId`).

    Raises:
        ValueError: If there is no such time zone.
    """
    name = re.sub(r"(\+|-)(\d):", r"\g<1>0\2:", name, count=1)
    name = re.sub(r"(\+|-)(\d\d):(\d)$", r"\1\2:0\3", name, count=1)
    name = _SHORT_IDS.get(name, name)
    if name == "Z":
        return UTC
    if name[:1] in ("+", "-"):
        return _fixed_offset(name)
    for prefix in ("UTC", "GMT", "UT"):
        rest = name.removeprefix(prefix)
        if rest != name:
            if not rest:
                return UTC
            if rest[0] in "+-":
                return _fixed_offset(rest)
    if name not in available_timezones():
        raise ValueError(f"there is no time zone '{name}'")
    try:
        zone = ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ValueError(f"there is no time zone '{name}'") from error
    return zone if zone.utcoffset(None) != timedelta(0) else UTC  # Etc/UTC, GMT0 and similar zones


def _fixed_offset(text: str) -> tzinfo:
    match = _OFFSET.fullmatch(text)
    if match is None or not _OFFSET_FORMS.fullmatch(text):
        raise ValueError(f"'{text}' is not an offset from UTC")
    hours, minutes, seconds = (int(part or 0) for part in match.groups()[1:])
    if minutes > 59 or seconds > 59 or hours * 3600 + minutes * 60 + seconds > 18 * 3600:
        raise ValueError(f"'{text}' is not an offset from UTC")
    offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return timezone(-offset if match[1] == "-" else offset)


def us_of_local(days: int, us: int, zone: tzinfo) -> int:
    """Return the microseconds since 1970 UTC of a local date and time, like `ZonedDateTime.of`.

    A local time that occurs twice is the earlier moment. A time inside a gap is moved later by the length of the gap.

    Args:
        days: Days since 1970.
        us: Microseconds since midnight.
        zone: Zone of the local time.
    """
    local = days * DAY_US + us
    if zone is UTC:
        return local
    # datetime supports only the years 1 to 9999. Move other years by whole eras, because the calendar repeats.
    eras = min((days + 719_000) // ERA_DAYS, 0) + max((days - 2_300_000) // ERA_DAYS, 0)
    moment = datetime(1970, 1, 1) + timedelta(days=days - eras * ERA_DAYS, microseconds=us)
    offset = moment.replace(tzinfo=zone).utcoffset()
    assert offset is not None
    return local - int(offset / timedelta(microseconds=1))


def us_of_locals(us: np.ndarray, zone: tzinfo) -> np.ndarray:
    """Convert local timestamps, as `us_of_local` does.

    All timestamps of a day share one offset, unless the zone changes its offset on that day.

    Args:
        us: int64[n], microseconds since 1970 of local times.
        zone: Zone of the local times.

    Returns:
        int64[n], microseconds since 1970 UTC.
    """
    days, day_of = np.unique(us // DAY_US, return_inverse=True)
    offsets = [_offset_on(int(day), zone) for day in days]
    utc: np.ndarray = us - np.array([offset or 0 for offset in offsets], np.int64)[day_of]
    for i in np.flatnonzero(np.array([offset is None for offset in offsets])[day_of]):
        utc[i] = us_of_local(*divmod(int(us[i]), DAY_US), zone)
    return utc


@lru_cache(1 << 16)
def _offset_on(day: int, zone: tzinfo) -> int | None:
    """Return a zone's offset from UTC in microseconds on a local day; None if it changes on that day."""
    first, last = (day * DAY_US + us - us_of_local(day, us, zone) for us in (0, DAY_US - 1))
    return first if first == last else None
