"""Doubles in the text form of Java, and dates."""

from __future__ import annotations

from decimal import Context, localcontext

import pytest

from kafkalog_spark.typed.columns.gregorian import gregorian_days
from kafkalog_spark.typed.columns.java_text import double_text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (-0.0, "-0.0"), (1.0, "1.0"), (-1.5, "-1.5"), (100.0, "100.0"), (123.45, "123.45"), (1e6, "1000000.0"),
        (9999999.0, "9999999.0"), (1e7, "1.0E7"), (12345678.9, "1.23456789E7"), (0.001, "0.001"), (0.00099, "9.9E-4"),
        (1e16, "1.0E16"), (1e23, "1.0E23"), (2e-3, "0.002"), (0.1 + 0.2, "0.30000000000000004"),
        (1 / 3, "0.3333333333333333"), (5e-324, "4.9E-324"), (1e-323, "9.9E-324"),
        (2.2250738585072014e-308, "2.2250738585072014E-308"), (1.7976931348623157e308, "1.7976931348623157E308"),
        (123456789012345680.0, "1.2345678901234568E17"), (999999999999999.0, "9.99999999999999E14"),
        (float("inf"), "Infinity"), (-float("inf"), "-Infinity"), (float("nan"), "NaN"),
    ],
)  # fmt: skip
def test_doubles_are_written_as_in_java(number: float, text: str) -> None:
    """Double.toString of Java 19 and later."""
    assert double_text(number) == text


def test_double_text_ignores_the_decimal_context_of_the_thread() -> None:
    with localcontext(Context(prec=5)):
        assert double_text(123456.789) == "123456.789"


def test_invalid_date_is_named_in_the_error() -> None:
    with pytest.raises(ValueError, match="there is no date 2023-13-1"):
        gregorian_days(2023, 13, 1)
