"""Translation of the filters that Spark pushes, on offset, timestamp, partition and topic, to a `RowFilter`.

If a source accepts a filter, Spark does not apply it again. So a filter is accepted only if the RowFilter selects
exactly the same rows. All other filters are left to Spark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog_spark.format.layout import MAX_INT64, MIN_INT64
from kafkalog_spark.source.row_filter import TESTS, PartitionTest, RowFilter

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter  # Spark 4.0 has none

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER_NULL = {name.lower(): name for name in ("topic", "partition", "offset", "timestamp", "timestampType")}
"""Columns that are never null, by lower-case name, because a user's schema may have names in any case."""

_EXACT_DOUBLE = 2**53
"""Magnitude below which Spark's comparison of a bigint with a double is exact."""
_NEGATED = {
    "GreaterThan": "LessThanOrEqual",
    "LessThan": "GreaterThanOrEqual",
    "LessThanOrEqual": "GreaterThan",
    "GreaterThanOrEqual": "LessThan",
}
"""Negation of each comparison."""
_MAX_DECIMAL_DIGITS = 40  # Spark's decimals have at most 38


class SplitFilters(NamedTuple):
    """Pushed filters, divided.

    Attributes:
        row_filter: Filters that the read applies.
        residual: Filters that Spark must apply: the objects that it has pushed, in their order.
    """

    row_filter: RowFilter
    residual: list[Filter]


def split_filters(filters: Iterable[Filter]) -> SplitFilters:
    """Divide pushed filters, which Spark combines with AND.

    A filter is left to Spark unless its constants can be converted exactly: integers, integral strings, Decimals,
    floats of a magnitude below 2**53, and for `timestamp` datetimes with a time zone.
    """
    row_filter, residual = RowFilter(), []
    for pushed in filters:
        narrowed = _narrow(row_filter, pushed)
        if narrowed is None:
            residual.append(pushed)
        else:
            row_filter = narrowed
    return SplitFilters(row_filter, residual)


def _narrow(row_filter: RowFilter, pushed: Filter) -> RowFilter | None:
    """Return the row filter narrowed by a pushed filter; None if it cannot be expressed exactly."""
    from pyspark.sql import datasource as spark

    negated = False
    while type(pushed) is spark.Not:
        # The accepted columns are never null, so Not is a negation without a third value.
        negated, pushed = not negated, pushed.child
    attribute = getattr(pushed, "attribute", None)
    if not isinstance(attribute, tuple) or len(attribute) != 1 or attribute[0].lower() not in _NEVER_NULL:
        return None
    column = _NEVER_NULL[attribute[0].lower()]
    if type(pushed) is (spark.IsNull if negated else spark.IsNotNull):
        return row_filter
    op = type(pushed).__name__
    if op not in TESTS or type(pushed).__module__ != spark.__name__:
        return None
    if column in ("partition", "topic"):
        if op.startswith("String") and column != "topic":
            return None
        constants = _constants(op, pushed.value, _text if column == "topic" else _number)
        if constants is None:
            return None
        test = PartitionTest(column, op, frozenset(constants) if op == "In" else constants[0], negated)
        return replace(row_filter, partition_tests=(*row_filter.partition_tests, test))
    if column in ("offset", "timestamp"):
        return _with_bounds(row_filter, column, op, pushed.value, negated)
    return None


def _with_bounds(row_filter: RowFilter, column: str, op: str, value: Any, negated: bool) -> RowFilter | None:
    """Return the row filter narrowed by a condition on "offset" or "timestamp"; None if that cannot be exact."""
    if negated:
        if op not in _NEGATED:
            return None
        op = _NEGATED[op]
    constants = _constants(op, value, _number if column == "offset" else _milliseconds)
    if constants is None:
        return None
    low, high, listed = MIN_INT64, MAX_INT64, None
    match op:
        case "GreaterThan":
            low = math.floor(constants[0]) + 1
        case "GreaterThanOrEqual":
            low = math.ceil(constants[0])
        case "LessThan":
            high = math.ceil(constants[0])
        case "LessThanOrEqual":
            high = math.floor(constants[0]) + 1
        case "EqualTo" | "EqualNullSafe" | "In":
            # A constant between two integers equals neither.
            listed = {int(constant) for constant in constants if constant == int(constant)}
        case _:
            return None
    unit = "" if column == "offset" else "_ms"
    names = f"{column}_from{unit}", f"{column}_until{unit}", f"{column}_in{unit}"
    previous_low, previous_high, previous_list = (getattr(row_filter, name) for name in names)
    low, high = min(max(low, previous_low), MAX_INT64), max(min(high, previous_high), MIN_INT64)
    if previous_list is not None:
        listed = set(previous_list) if listed is None else listed.intersection(previous_list)
    chosen = None
    if listed is not None:
        remaining = sorted(number for number in listed if low <= number < high)
        low, high = (remaining[0], remaining[-1] + 1) if remaining else (low, low)
        chosen = tuple(remaining) if len(remaining) > 1 else None
    narrowed: dict[str, Any] = dict(zip(names, (low, high, chosen), strict=True))
    return replace(row_filter, **narrowed)


def _constants(op: str, value: Any, convert: Callable[[Any], Any]) -> list[Any] | None:
    """Return the constants of a filter, converted; None if one cannot be converted."""
    values = value if op == "In" else (value,)
    if not isinstance(values, tuple | list):
        return None
    converted = [convert(constant) for constant in values]
    return None if None in converted else converted


def _text(value: Any) -> str | None:
    return value if type(value) is str else None


def _number(value: Any) -> int | Fraction | None:
    """Return the exact value of a constant that is compared with an integer column; None if it cannot be exact."""
    if type(value) is int:
        return value
    if type(value) is float:
        return Fraction(value) if abs(value) < _EXACT_DOUBLE else None  # None for NaN and infinity, too
    if type(value) is Decimal:
        if not value.is_finite() or abs(value.adjusted()) > _MAX_DECIMAL_DIGITS:
            return None
        return Fraction(value)
    if type(value) is str:
        digits = value[1:] if value[:1] in ("+", "-") else value
        return int(value) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None
    return None


def _milliseconds(value: Any) -> Fraction | None:
    """Return a datetime as exact milliseconds since 1970; None for a naive datetime, whose time zone is unknown."""
    # Subclasses are refused: pandas' Timestamp has nanoseconds.
    if type(value) is not datetime or value.utcoffset() is None:
        return None
    try:
        return Fraction((value - _EPOCH) // timedelta(microseconds=1), 1000)
    except OverflowError:  # the time zone moves the first or last day out of the range of datetimes
        return None
