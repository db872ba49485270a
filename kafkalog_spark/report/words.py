"""Readable texts of numbers. Times are in UTC, sizes in units of 1000 bytes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

_SIZES = (" B", " kB", " MB", " GB", " TB", " PB")
_COUNTS = ("", " k", " M", " G", " T")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DURATIONS = (("years", 31_557_600_000), ("days", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))
"""Units and their ms."""
NOTHING = "–"  # where there is no value


def size_text(size: float) -> str:
    """Return a size, such as `1.23 GB`."""
    return _scaled(size, _SIZES)


def short_count(count: int) -> str:
    """Return a rounded count, such as `1.23 M`."""
    return _scaled(count, _COUNTS)


def count_text(count: int | None) -> str:
    """Return an exact count, such as `1,234,567`."""
    return NOTHING if count is None else f"{count:,}"


def rounded_text(value: float) -> str:
    """Return three significant digits without an exponent, such as `16,200` or `5.92`."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:g}"


def time_text(ms: int | None) -> str:
    """Return a time, such as `2026-01-31 12:34:56`; the number if it is outside of the calendar."""
    if ms is None:
        return NOTHING
    try:
        return f"{_EPOCH + timedelta(milliseconds=ms):%Y-%m-%d %H:%M:%S}"
    except OverflowError:
        return f"{ms} ms"


def duration_text(ms: int | None) -> str:
    """Return a duration, such as `3.2 days`, `45 min` or `120 ms`."""
    if ms is None:
        return NOTHING
    for unit, length in _DURATIONS:
        if ms >= 2 * length or (ms >= length and unit == "s"):
            return f"{rounded_text(ms / length)} {unit}"  # below 1000 of each unit except years
    return f"{ms} ms"


def bytes_text(data: bytes | None, max_length: int = 60) -> str:
    """Return the text of a key: printable UTF-8 as it is, anything else in hexadecimal digits.

    A text that could be mistaken for null or hexadecimal digits is quoted. The middle of a long key is cut out, because
    keys often begin alike.
    """
    if data is None:
        return "null"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if not text.isprintable():
        text = f"0x{data.hex()}"
    elif text in ("", "null") or text.startswith(("0x", '"')):
        text = f'"{text}"'
    return f"{text[: max_length - max_length // 3]}…{text[-(max_length // 3) :]}" if len(text) > max_length else text


def _scaled(value: float, units: Sequence[str]) -> str:
    power = 0
    while abs(value) >= 999.5 and power < len(units) - 1:
        value, power = value / 1000, power + 1
    return f"{rounded_text(value) if power else f'{value:.0f}'}{units[power]}"
