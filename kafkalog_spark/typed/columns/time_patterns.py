"""Parser of Spark's timestampFormat and dateFormat, as far as patterns are unambiguous."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import tzinfo

from kafkalog_spark.typed.columns.gregorian import checked_days, gregorian_days, time_us
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
"""yyyy, which Spark reads as uuuu: all digits except those of the fields that follow without a separator. A year with
more than four digits has a sign (SignStyle.EXCEEDS_PAD)."""
_ADJACENT = re.compile(r"(?:MM|dd|HH|mm|ss)*(?:S(?!S))?")
"""Fields of fixed width that follow without a separator: one digit per letter. A fraction of several letters does not
have a fixed width."""
_PATTERN_PART = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|([^A-Za-z'])", re.DOTALL)


def pattern_reader(pattern: str) -> Callable[[str], tuple[int, int, tzinfo | None]]:
    """Return a function that parses texts with a pattern.

    Args:
        pattern: Pattern of Java's DateTimeFormatter with yyyy MM dd HH mm ss S... XXX, quoted letters and signs.

    Returns:
        A function from a text to (days since 1970, microseconds since midnight, zone in the text or None). It raises
        ValueError for a text that does not match.

    Raises:
        ValueError: If the pattern has other letters or signs, or does not contain year, month and day.
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
            parts.append(rf"(?P<fraction>\d{{1,{digits}}})")  # Spark allows fewer digits than letters
        elif part[0] == "yyyy":
            after = len(_ADJACENT.match(pattern, part.end())[0])  # type: ignore[index]
            parts.append(_YEAR.format(rf"(?=\d{{{after}}}(?!\d))"))
        elif part[0] in _FIELDS:
            parts.append(_FIELDS[part[0]])
        else:
            raise ValueError(f"the pattern '{pattern}' has '{part[0]}'")
    if "".join(part[0] for part in _PATTERN_PART.finditer(pattern)) != pattern:
        raise ValueError(f"the pattern '{pattern}' has a quote without an end")
    try:
        expression = re.compile("".join(parts), re.ASCII | re.IGNORECASE)
    except re.error:
        raise ValueError(f"the pattern '{pattern}' names a field twice") from None
    if not {"year", "month", "day"} <= expression.groupindex.keys():
        raise ValueError(f"the pattern '{pattern}' does not contain year, month and day")

    def read(text: str) -> tuple[int, int, tzinfo | None]:
        match = expression.fullmatch(text)
        if match is None:
            raise ValueError(f"it does not match the pattern {pattern}")
        fields = match.groupdict()
        days = checked_days(gregorian_days(int(fields["year"]), int(fields["month"]), int(fields["day"])))
        fraction = (fields.get("fraction") or "")[:6].ljust(6, "0")
        hour, minute, second = (int(fields.get(name) or 0) for name in ("hour", "minute", "second"))
        us = time_us(hour, minute, second, int(fraction))
        zone = fields.get("zone")
        return days, us, None if zone is None else zone_of(zone.upper())

    return read
