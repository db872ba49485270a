"""Pushed filters: what is accepted does to every row exactly what the filter says; the rest goes back untouched."""

from __future__ import annotations

import operator
import pickle
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
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

from kafkalog_spark.source.filters import MAX_INT64, MIN_INT64, RowFilter, split_filters

OFFSET, TIMESTAMP, PARTITION, TOPIC = ("offset",), ("timestamp",), ("partition",), ("topic",)
NEW_YORK = timezone(timedelta(hours=-5))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class NanosecondTimestamp(datetime):
    """Like pandas' Timestamp: there is more to it than a datetime has."""


def at(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


def accepted(*filters: Filter) -> RowFilter:
    row_filter, unsupported = split_filters(filters)
    assert unsupported == []
    return row_filter


# The shapes that Spark pushes


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
    ],
)
def test_bounds_of_offsets(pushed: Filter, bounds: tuple[int, int]) -> None:
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
def test_bounds_of_timestamps_are_exact_to_the_microsecond(pushed: Filter, bounds: tuple[int, int]) -> None:
    assert accepted(pushed) == RowFilter(timestamp_from_ms=bounds[0], timestamp_until_ms=bounds[1])


def test_lists_are_sorted_and_narrow_the_bounds() -> None:
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
def test_filters_that_no_row_passes(filters: list[Filter]) -> None:
    row_filter = accepted(*filters)
    assert row_filter.keeps_nothing
    assert not any(row_filter.accepts(offset, 1) for offset in range(-1, 9))


def test_no_filter_keeps_every_row() -> None:
    row_filter = accepted()
    assert row_filter.keeps_every_row
    assert not row_filter.keeps_nothing
    assert row_filter.accepts_partition("t", 0)
    assert row_filter.accepts(0, -1)
    assert accepted(EqualTo(TOPIC, "t")).keeps_every_row
    assert not accepted(EqualTo(OFFSET, 1)).keeps_every_row


@pytest.mark.parametrize("column", ["offset", "timestamp", "partition", "topic", "timestampType"])
def test_is_not_null_is_always_true_of_a_column_that_never_is(column: str) -> None:
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
def test_partitions_and_topics(pushed: Filter, kept: set[tuple[str, int]]) -> None:
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
        EqualTo(("Offset",), 1),
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
def test_what_cannot_be_said_exactly_goes_back_as_the_same_object(pushed: Filter) -> None:
    before, after = GreaterThan(OFFSET, 1), LessThan(OFFSET, 9)
    row_filter, unsupported = split_filters([before, pushed, after])
    assert [id(back) for back in unsupported] == [id(pushed)]
    assert row_filter == RowFilter(offset_from=2, offset_until=9)


def test_a_filter_class_of_somebody_else_goes_back() -> None:
    class EqualToOrNot(EqualTo):
        """A subclass may mean something else."""

    pushed = EqualToOrNot(OFFSET, 1)
    assert split_filters([pushed]) == (RowFilter(), [pushed])


def test_a_row_filter_crosses_to_another_process() -> None:
    row_filter = accepted(In(OFFSET, (1, 2)), StringStartsWith(TOPIC, "a"), GreaterThan(PARTITION, 0.5))
    assert pickle.loads(pickle.dumps(row_filter)) == row_filter


# Random filters on random rows

COMPARISONS: dict[Any, Any] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    StringStartsWith: str.startswith,
    StringEndsWith: str.endswith,
    StringContains: operator.contains,
}


def holds(pushed: Any, row: dict[str, Any]) -> bool:
    """The filter as its documentation says, on one row. Numbers compare exactly in Python, whatever their types."""
    if isinstance(pushed, Not):
        return not holds(pushed.child, row)
    actual = row[pushed.attribute[0]]
    if isinstance(pushed, IsNotNull):
        return actual is not None
    if isinstance(pushed, In):
        return actual in pushed.value
    return bool(COMPARISONS[type(pushed)](actual, pushed.value))


small = st.integers(-5, 12)
numbers = st.one_of(
    small,
    st.sampled_from([MIN_INT64 - 1, MIN_INT64, -(2**53), 2**53 + 1, MAX_INT64 - 1, MAX_INT64, MAX_INT64 + 1]),
    st.integers(-50, 120).map(lambda tenths: tenths / 10),
    st.integers(-50, 120).map(lambda tenths: Decimal(tenths) / 10),
)
instants = st.one_of(
    st.integers(-5, 12).map(lambda ms: at(ms * 1000)),
    st.integers(-5000, 12_000).map(at),
    st.sampled_from([datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]),
    st.integers(-5000, 12_000).map(lambda us: at(us).astimezone(timezone(timedelta(hours=5, minutes=30)))),
)
names = st.text("ab", max_size=3)
ORDERINGS = [EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]


def on(column: tuple[str], constants: st.SearchStrategy[Any], classes: list[Any]) -> st.SearchStrategy[Filter]:
    return st.one_of(
        st.builds(lambda cls, value: cls(column, value), st.sampled_from(classes), constants),
        st.lists(constants, max_size=5).map(lambda values: In(column, tuple(values))),
        st.just(IsNotNull(column)),
    )


plain_filters = st.one_of(
    on(OFFSET, numbers, ORDERINGS),
    on(TIMESTAMP, instants, ORDERINGS),
    on(PARTITION, numbers, ORDERINGS),
    on(TOPIC, names, [*ORDERINGS, StringStartsWith, StringEndsWith, StringContains]),
)
some_filters = st.lists(st.recursive(plain_filters, lambda child: child.map(Not), max_leaves=3), max_size=4)
rows = st.lists(
    st.tuples(
        names,
        st.integers(0, 12),
        small | st.sampled_from([2**53, 2**53 + 1, MAX_INT64 - 1]),
        small | st.sampled_from([-62135596800000, 253402300799999]),
    ),
    max_size=12,
)


@given(some_filters, rows)
def test_the_accepted_filters_keep_exactly_the_rows_they_hold_for(
    filters: list[Filter], table: list[tuple[str, int, int, int]]
) -> None:
    row_filter, unsupported = split_filters(filters)
    applied = [pushed for pushed in filters if not any(pushed is back for back in unsupported)]
    assert len(applied) + len(unsupported) == len(filters)
    for topic, partition, offset, ms in table:
        row = {"topic": topic, "partition": partition, "offset": offset, "timestamp": at(ms * 1000)}
        kept = row_filter.accepts_partition(topic, partition) and row_filter.accepts(offset, ms)
        assert kept == all(holds(pushed, row) for pushed in applied)
        if kept:
            assert not row_filter.keeps_nothing


@given(some_filters)
def test_lists_are_within_their_bounds_and_bounds_within_int64(filters: list[Filter]) -> None:
    row_filter, _ = split_filters(filters)
    sides = [
        (row_filter.offset_from, row_filter.offset_until, row_filter.offset_in),
        (row_filter.timestamp_from_ms, row_filter.timestamp_until_ms, row_filter.timestamp_in_ms),
    ]
    for low, high, listed in sides:
        assert MIN_INT64 <= low <= MAX_INT64
        assert MIN_INT64 <= high <= MAX_INT64
        if listed is not None:
            assert len(listed) > 1
            assert (low, high) == (listed[0], listed[-1] + 1)
            assert all(type(number) is int for number in listed)
            assert list(listed) == sorted(set(listed))


@given(st.datetimes(timezones=st.just(UTC)).map(lambda moment: (moment - EPOCH) // timedelta(microseconds=1)))
def test_a_timestamp_is_compared_as_its_microseconds(us: int) -> None:
    moment = at(us)
    assert accepted(GreaterThanOrEqual(TIMESTAMP, moment)).timestamp_from_ms == -(-us // 1000)
    for ms in (us // 1000 - 1, us // 1000, us // 1000 + 1):
        assert accepted(LessThan(TIMESTAMP, moment)).accepts(0, ms) == (ms * 1000 < us)
