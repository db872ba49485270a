"""Patterns of timestampFormat and dateFormat."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import tzinfo

from kafkalog_spark.typed.columns.spark_times import _days_in_range, days_of, time_us
from kafkalog_spark.typed.columns.time_zones import zone_of

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
