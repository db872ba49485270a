"""Dates and timestamps in text as Spark reads them without a pattern (DateTimeUtils)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo

from kafkalog_spark.typed.columns.gregorian import checked_days, checked_us, gregorian_days, time_us
from kafkalog_spark.typed.columns.time_zones import us_of_local, zone_of

_TRIMMED = "".join(map(chr, [*range(33), 127]))
_DATE = re.compile(r"([+-])?(\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_TIME = r"(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?(.*)?)?)?"
_TIMESTAMP = re.compile(rf"([+-])?(\d{{4,6}})(?:-(\d{{1,2}})(?:-(\d{{1,2}})(?:[ T]{_TIME})?)?)?", re.ASCII | re.DOTALL)
_TIME_ALONE = re.compile(rf"(T)?{_TIME}", re.ASCII | re.DOTALL)


def date_of_text(text: str) -> int:
    """Return the days since 1970 of a date (`DateTimeUtils.stringToDate`).

    Args:
        text: yyyy, yyyy-[m]m or yyyy-[m]m-[d]d, which a space or a T and any text may follow.

    Raises:
        ValueError: If the text is not a date.
    """
    match = _DATE.fullmatch(text.strip(_TRIMMED))
    if match is None:
        raise ValueError("it is not a date")
    sign, year, month, day = match.groups()
    return checked_days(gregorian_days(int(f"{sign or ''}{year}"), int(month or 1), int(day or 1)))


def timestamp_of_text(text: str, zone: tzinfo, *, with_zone: bool = True) -> int:
    """Return the microseconds since 1970 of a timestamp (`DateTimeUtils.stringToTimestamp`).

    Args:
        text: A date with or without a time and a time zone. A time alone is a time of today.
        zone: Time zone of texts that do not name one.
        with_zone: If false, read a local timestamp (`stringToTimestampWithoutTimeZone`): the result does not depend on
            a zone, and a text with a zone is an error.

    Raises:
        ValueError: If the text is not a timestamp.
    """
    text = text.strip(_TRIMMED)
    match = _TIMESTAMP.fullmatch(text)
    if match is not None:
        sign, year, month, day, hour, minute, second, fraction, zone_text = match.groups()
        if hour is not None and (minute is None or second is None):
            zone_text = None  # Spark accepts a time without seconds, but no zone after it
    else:
        time_match = _TIME_ALONE.fullmatch(text)
        if time_match is None or not (time_match[1] or time_match[3]) or not with_zone:
            raise ValueError("it is not a timestamp")
        hour, minute, second, fraction, zone_text = time_match.groups()[1:]
        sign = year = month = day = None
    own_zone = zone_of(zone_text.strip(_TRIMMED)) if zone_text else zone
    if zone_text and not with_zone:
        raise ValueError("a time zone where none is allowed")
    us = time_us(int(hour or 0), int(minute or 0), int(second or 0), int((fraction or "0")[:6].ljust(6, "0")))
    if year is None:
        today = datetime.now(own_zone)
        days = gregorian_days(today.year, today.month, today.day)
    else:
        days = gregorian_days(int(f"{sign or ''}{year}"), int(month or 1), int(day or 1))
    return checked_us(us_of_local(days, us, own_zone if with_zone else UTC))
