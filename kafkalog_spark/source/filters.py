"""Spark's pushed filters on offset, timestamp, partition and topic as a plain `RowFilter`.

Spark does not apply a filter again that a source accepts, so only those are accepted whose effect on every row is
exactly the same here. Everything else goes back to Spark.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from kafkalog_spark.format.layout import MAX_INT64, MIN_INT64

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER_NULL = {name.lower(): name for name in ("topic", "partition", "offset", "timestamp", "timestampType")}
"""By the names in small letters: the schema that a filter is of may have any case."""

# Doubles are exact below this; at it, Spark's comparison of a bigint with a double no longer is.
_EXACT_DOUBLE = 2**53
_MAX_DECIMAL_DIGITS = 40  # Spark's decimals have 38


# Strings compare by code point, which is the order of their UTF-8 bytes: Spark's default collation.
_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": operator.eq,
    "EqualNullSafe": operator.eq,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "In": lambda actual, values: actual in values,
    "StringStartsWith": str.startswith,
    "StringEndsWith": str.endswith,
    "StringContains": operator.contains,
}
"""By the names of Spark's filters."""


@dataclass(frozen=True, slots=True)
class PartitionTest:
    """Condition on "topic" or "partition". op: of _TESTS. value: str, int or Fraction, of "In" a frozenset."""

    column: str
    op: str
    value: Any
    negated: bool = False

    def accepts(self, topic: str, partition: int) -> bool:
        actual = topic if self.column == "topic" else partition
        return bool(_TESTS[self.op](actual, self.value)) is not self.negated


@dataclass(frozen=True, slots=True)
class RowFilter:
    """The rows to keep: all conditions hold. Bounds are half open and fit int64; the default keeps every row.

    `offset_in`, `timestamp_in_ms`: sorted, distinct, within the bounds above, which they narrow; None: no list.
    No row has the offset or the timestamp 2**63 - 1: the log end offset after it, and Spark's microseconds, would not
    fit. So that number as an upper bound means none.
    """

    offset_from: int = MIN_INT64
    offset_until: int = MAX_INT64
    timestamp_from_ms: int = MIN_INT64
    timestamp_until_ms: int = MAX_INT64
    offset_in: tuple[int, ...] | None = None
    timestamp_in_ms: tuple[int, ...] | None = None
    partition_tests: tuple[PartitionTest, ...] = ()

    @property
    def keeps_nothing(self) -> bool:
        return self.offset_from >= self.offset_until or self.timestamp_from_ms >= self.timestamp_until_ms

    def accepts_partition(self, topic: str, partition: int) -> bool:
        return all(test.accepts(topic, partition) for test in self.partition_tests)


def split_filters(filters: Iterable[Any]) -> tuple[RowFilter, list[Any]]:
    """(what is applied here, the filters that Spark has to apply: the same objects, in the order given), of
    `pyspark.sql.datasource.Filter`s, all of which must hold. Constants are exact or refused: integers, integral
    strings, Decimals, floats of magnitude below 2**53, and for `timestamp` datetimes with a time zone."""
    row_filter, unsupported = RowFilter(), []
    for pushed in filters:
        narrowed = _narrowed(row_filter, pushed)
        if narrowed is None:
            unsupported.append(pushed)
        else:
            row_filter = narrowed
    return row_filter, unsupported


def _narrowed(row_filter: RowFilter, pushed: Any) -> RowFilter | None:
    """Both conditions; None if that cannot be said exactly."""
    from pyspark.sql import datasource as spark

    negated = False
    while type(pushed) is spark.Not:
        # No column taken here is ever null, so Not is plain negation.
        negated, pushed = not negated, pushed.child
    attribute = getattr(pushed, "attribute", None)
    if not isinstance(attribute, tuple) or len(attribute) != 1 or attribute[0].lower() not in _NEVER_NULL:
        return None
    column = _NEVER_NULL[attribute[0].lower()]
    if type(pushed) is (spark.IsNull if negated else spark.IsNotNull):
        return row_filter
    op = type(pushed).__name__
    if op not in _TESTS or type(pushed).__module__ != spark.__name__:
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


_NEGATED = {"GreaterThan": "LessThanOrEqual", "LessThan": "GreaterThanOrEqual"}
_NEGATED |= {other: op for op, other in _NEGATED.items()}


def _with_bounds(row_filter: RowFilter, column: str, op: str, value: Any, negated: bool) -> RowFilter | None:
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
            # A constant between two whole numbers equals none of them.
            listed = {int(constant) for constant in constants if constant == int(constant)}
        case _:
            return None
    unit = "" if column == "offset" else "_ms"
    names = f"{column}_from{unit}", f"{column}_until{unit}", f"{column}_in{unit}"
    low_before, high_before, listed_before = (getattr(row_filter, name) for name in names)
    low, high = min(max(low, low_before), MAX_INT64), max(min(high, high_before), MIN_INT64)
    if listed_before is not None:
        listed = set(listed_before) if listed is None else listed.intersection(listed_before)
    chosen = None
    if listed is not None:
        left = sorted(number for number in listed if low <= number < high)
        low, high = (left[0], left[-1] + 1) if left else (low, low)
        chosen = tuple(left) if len(left) > 1 else None
    narrowed: dict[str, Any] = dict(zip(names, (low, high, chosen), strict=True))
    return replace(row_filter, **narrowed)


def _constants(op: str, value: Any, convert: Any) -> list[Any] | None:
    """Converted; None if one of them cannot be, or where a list is not one."""
    values = value if op == "In" else (value,)
    if not isinstance(values, tuple | list):
        return None
    converted = [convert(constant) for constant in values]
    return None if None in converted else converted


def _text(value: Any) -> str | None:
    return value if type(value) is str else None


def _number(value: Any) -> int | Fraction | None:
    """The exact value of a constant compared with an integer column; None if it has none."""
    if type(value) is int:
        return value
    if type(value) is float:
        return Fraction(value) if abs(value) < _EXACT_DOUBLE else None  # false for NaN and infinity
    if type(value) is Decimal:
        if not value.is_finite() or abs(value.adjusted()) > _MAX_DECIMAL_DIGITS:
            return None
        return Fraction(value)
    if type(value) is str:
        digits = value[1:] if value[:1] in ("+", "-") else value
        return int(value) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None
    return None


def _milliseconds(value: Any) -> Fraction | None:
    """A datetime as exact milliseconds since 1970; None for a naive one, whose time zone is anyone's guess."""
    # Not a subclass: pandas' Timestamp has nanoseconds.
    if type(value) is not datetime or value.utcoffset() is None:
        return None
    try:
        return Fraction((value - _EPOCH) // timedelta(microseconds=1), 1000)
    except OverflowError:  # the first and the last day of the calendar, moved out of it by their time zone
        return None
