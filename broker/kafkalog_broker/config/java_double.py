"""Conversion of floating point numbers from and to text as in Java."""

from __future__ import annotations

import math
import re
from decimal import Decimal

_DECIMAL = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_NOT_FINITE = {
    sign + word: value
    for word, number in (("NaN", math.nan), ("Infinity", math.inf))
    for sign, value in (("", number), ("+", number), ("-", -number))
}


def parse_java_double(text: str) -> float | None:
    """Return the value of a text as Double.parseDouble does, or None if it is not a number.

    `0.5f` is a number; `nan` and `0_5` are not.
    """
    match = _DECIMAL.fullmatch(text)
    return float(match[1]) if match else _NOT_FINITE.get(text)


def java_double(value: float) -> str:
    """Return the text of Double.toString: plain notation from 0.001 to 10^7, otherwise as in 1.0E10."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    fraction = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{fraction}E{exponent + len(digits) - 1}"
