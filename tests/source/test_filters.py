"""Pushed filters: what is accepted does to every row exactly what the filter says; the rest goes back untouched."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from kafkalog_spark.format.layout import MAX_INT64, MIN_INT64
from kafkalog_spark.source.filters import split_filters
from kafkalog_spark.source.row_filter import RowFilter
from tests.source.helpers.filters import OFFSET, PARTITION, TIMESTAMP, TOPIC, accepted, at
from tests.source.helpers.row_filters import accepts

NEW_YORK = timezone(timedelta(hours=-5))


class NanosecondTimestamp(datetime):
    """Like pandas' Timestamp: there is more to it than a datetime has."""


@pytest.mark.parametrize(
    ("pushed", "bounds"),
    [
        (GreaterThanOrEqual(OFFSET, 3), (3, MAX_INT64)),
        (GreaterThan(OFFSET, 3), (4, MAX_INT64)),
        (LessThanOrEqual(OFFSET, 7), (MIN_INT64, 8)),
        (LessThan(OFFSET, 7), (MIN_INT64, 7)),
        (EqualTo(OFFSET, 7), (7, 8)),
        (EqualNullSafe(OFFSET, 7), (7, 8)),
        (Not(GreaterThan(OFFSET, 3)), (MIN_INT64, 4)),
        (Not(Not(LessThan(OFFSET, 3))), (MIN_INT64, 3)),
        (GreaterThan(OFFSET, 3.5), (4, MAX_INT64)),
        (GreaterThanOrEqual(OFFSET, Decimal("3.000")), (3, MAX_INT64)),
        (LessThan(OFFSET, Decimal("-3.5")), (MIN_INT64, -3)),
        (LessThanOrEqual(OFFSET, "10"), (MIN_INT64, 11)),
        (GreaterThan(OFFSET, MIN_INT64 - 10), (MIN_INT64, MAX_INT64)),
        (LessThan(OFFSET, 2**70), (MIN_INT64, MAX_INT64)),
        (In(OFFSET, (5,)), (5, 6)),
        (EqualTo(("Offset",), 7), (7, 8)),
    ],
)
def test_offset_filters_become_bounds(pushed: Filter, bounds: tuple[int, int]) -> None:
    assert accepted(pushed) == RowFilter(offset_from=bounds[0], offset_until=bounds[1])


@pytest.mark.parametrize(
    ("pushed", "bounds"),
    [
        # 1.5 ms lies between two record timestamps; 2 ms is one
        (GreaterThanOrEqual(TIMESTAMP, at(1500)), (2, MAX_INT64)),
        (GreaterThan(TIMESTAMP, at(1500)), (2, MAX_INT64)),
        (LessThan(TIMESTAMP, at(1500)), (MIN_INT64, 2)),
        (LessThanOrEqual(TIMESTAMP, at(1500)), (MIN_INT64, 2)),
        (GreaterThanOrEqual(TIMESTAMP, at(2000)), (2, MAX_INT64)),
        (GreaterThan(TIMESTAMP, at(2000)), (3, MAX_INT64)),
        (LessThan(TIMESTAMP, at(2000)), (MIN_INT64, 2)),
        (LessThanOrEqual(TIMESTAMP, at(2000)), (MIN_INT64, 3)),
        (EqualTo(TIMESTAMP, at(2000)), (2, 3)),
        # before 1970
        (GreaterThanOrEqual(TIMESTAMP, at(-1)), (0, MAX_INT64)),
        (GreaterThanOrEqual(TIMESTAMP, at(-1000)), (-1, MAX_INT64)),
        (LessThan(TIMESTAMP, at(-1001)), (MIN_INT64, -1)),
        (LessThanOrEqual(TIMESTAMP, at(-1001)), (MIN_INT64, -1)),
        # another zone, the same instant
        (GreaterThanOrEqual(TIMESTAMP, datetime(2024, 1, 1, tzinfo=NEW_YORK)), (1704085200000, MAX_INT64)),
        # the ends of the calendar
        (LessThanOrEqual(TIMESTAMP, datetime.max.replace(tzinfo=UTC)), (MIN_INT64, 253402300800000)),
        (GreaterThanOrEqual(TIMESTAMP, datetime.min.replace(tzinfo=UTC)), (-62135596800000, MAX_INT64)),
    ],
)
def test_timestamp_filters_become_bounds_exact_to_the_microsecond(pushed: Filter, bounds: tuple[int, int]) -> None:
    assert accepted(pushed) == RowFilter(timestamp_from_ms=bounds[0], timestamp_until_ms=bounds[1])


def test_in_lists_are_sorted_and_narrow_the_bounds() -> None:
    assert accepted(In(OFFSET, (9, 3, 3, 5))) == RowFilter(offset_from=3, offset_until=10, offset_in=(3, 5, 9))
    assert accepted(In(OFFSET, [9, 3, 5]), LessThan(OFFSET, 9)) == RowFilter(
        offset_from=3, offset_until=6, offset_in=(3, 5)
    )
    assert accepted(In(OFFSET, (9, 3, 5)), In(OFFSET, (1, 5))) == RowFilter(offset_from=5, offset_until=6)
    assert accepted(In(TIMESTAMP, (at(9000), at(3000), at(500)))) == RowFilter(
        timestamp_from_ms=3, timestamp_until_ms=10, timestamp_in_ms=(3, 9)
    )


@pytest.mark.parametrize(
    "filters",
    [
        [EqualTo(OFFSET, 3.5)],
        [In(OFFSET, ())],
        [In(OFFSET, (1, 2)), In(OFFSET, (3,))],
        [EqualTo(OFFSET, 2**63)],
        [GreaterThan(OFFSET, 2**70)],
        [GreaterThan(OFFSET, 5), LessThan(OFFSET, 5)],
        [EqualTo(TIMESTAMP, at(1500))],
        [GreaterThanOrEqual(TIMESTAMP, at(1001)), LessThan(TIMESTAMP, at(2000))],
        [In(OFFSET, (1, 2)), LessThan(OFFSET, 1)],
    ],
)
def test_contradicting_filters_accept_no_row(filters: list[Filter]) -> None:
    row_filter = accepted(*filters)
    assert row_filter.keeps_nothing
    assert not any(accepts(row_filter, offset, 1) for offset in range(-1, 9))


def test_no_filter_keeps_every_row() -> None:
    row_filter = accepted()
    assert not row_filter.keeps_nothing
    assert row_filter.accepts_partition("t", 0)
    assert accepts(row_filter, 0, -1)


@pytest.mark.parametrize("column", ["offset", "timestamp", "partition", "topic", "timestampType"])
def test_is_not_null_is_true_for_columns_that_are_never_null(column: str) -> None:
    assert accepted(IsNotNull((column,)), Not(IsNull((column,)))) == RowFilter()


@pytest.mark.parametrize(
    ("pushed", "kept"),
    [
        (EqualTo(TOPIC, "b"), {("b", 0), ("b", 1)}),
        (Not(EqualTo(TOPIC, "b")), {("a", 0), ("bc", 2)}),
        (In(TOPIC, ("a", "bc")), {("a", 0), ("bc", 2)}),
        (Not(In(TOPIC, ("a", "bc"))), {("b", 0), ("b", 1)}),
        (GreaterThan(TOPIC, "b"), {("bc", 2)}),
        (LessThanOrEqual(TOPIC, "b"), {("a", 0), ("b", 0), ("b", 1)}),
        (StringStartsWith(TOPIC, "b"), {("b", 0), ("b", 1), ("bc", 2)}),
        (StringEndsWith(TOPIC, "c"), {("bc", 2)}),
        (Not(StringContains(TOPIC, "b")), {("a", 0)}),
        (EqualTo(PARTITION, 0), {("a", 0), ("b", 0)}),
        (GreaterThan(PARTITION, 0.5), {("b", 1), ("bc", 2)}),
        (LessThan(PARTITION, 2**40), {("a", 0), ("b", 0), ("b", 1), ("bc", 2)}),
        (Not(LessThan(PARTITION, 1)), {("b", 1), ("bc", 2)}),
        (In(PARTITION, (0, 2)), {("a", 0), ("b", 0), ("bc", 2)}),
        (EqualTo(PARTITION, Decimal("1.5")), set()),
    ],
)
def test_partition_and_topic_filters_choose_partitions(pushed: Filter, kept: set[tuple[str, int]]) -> None:
    row_filter = accepted(pushed)
    present = [("a", 0), ("b", 0), ("b", 1), ("bc", 2)]
    assert {tp for tp in present if row_filter.accepts_partition(*tp)} == kept


@pytest.mark.parametrize(
    "pushed",
    [
        EqualTo(("key",), b"\x00"),
        IsNull(("key",)),
        IsNotNull(("key",)),
        IsNotNull(("value",)),
        IsNotNull(("headers",)),
        IsNull(OFFSET),
        Not(IsNotNull(OFFSET)),
        EqualTo(("timestampType",), 0),
        EqualTo(("a", "offset"), 1),
        EqualTo(("other",), 1),
        Not(EqualTo(OFFSET, 1)),
        Not(In(OFFSET, (1,))),
        Not(EqualTo(TIMESTAMP, at(0))),
        StringStartsWith(OFFSET, "1"),
        StringStartsWith(PARTITION, "1"),
        EqualTo(OFFSET, None),
        EqualNullSafe(OFFSET, None),
        In(OFFSET, (1, None)),
        In(OFFSET, None),  # type: ignore[arg-type]
        EqualTo(OFFSET, True),
        EqualTo(OFFSET, float("nan")),
        LessThan(OFFSET, float("inf")),
        LessThan(OFFSET, float(2**53)),
        LessThan(OFFSET, Decimal("NaN")),
        LessThan(OFFSET, Decimal("-Infinity")),
        LessThan(OFFSET, Decimal("1e999999")),
        EqualTo(OFFSET, "1.0"),
        EqualTo(OFFSET, ""),
        EqualTo(OFFSET, "٣"),
        EqualTo(OFFSET, "9" * 5000),
        EqualTo(OFFSET, at(0)),
        EqualTo(TIMESTAMP, datetime(2024, 1, 1)),
        EqualTo(TIMESTAMP, date(2024, 1, 1)),
        EqualTo(TIMESTAMP, NanosecondTimestamp(2024, 1, 1, tzinfo=UTC)),
        EqualTo(TIMESTAMP, 5),
        EqualTo(TIMESTAMP, "2024-01-01"),
        In(TIMESTAMP, (at(0), datetime(2024, 1, 1))),
        EqualTo(TOPIC, 5),
        EqualTo(TOPIC, b"t"),
        In(TOPIC, ("t", None)),
        EqualTo(PARTITION, "x"),
    ],
    ids=repr,
)
def test_filter_without_an_exact_equivalent_is_returned_as_the_same_object(pushed: Filter) -> None:
    before, after = GreaterThan(OFFSET, 1), LessThan(OFFSET, 9)
    row_filter, unsupported = split_filters([before, pushed, after])
    assert [id(back) for back in unsupported] == [id(pushed)]
    assert row_filter == RowFilter(offset_from=2, offset_until=9)


def test_unknown_filter_class_is_returned() -> None:
    class EqualToOrNot(EqualTo):
        """A subclass may mean something else."""

    pushed = EqualToOrNot(OFFSET, 1)
    assert split_filters([pushed]) == (RowFilter(), [pushed])


def test_row_filter_survives_pickling() -> None:
    row_filter = accepted(In(OFFSET, (1, 2)), StringStartsWith(TOPIC, "a"), GreaterThan(PARTITION, 0.5))
    assert pickle.loads(pickle.dumps(row_filter)) == row_filter
