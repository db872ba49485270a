"""Random filters on random rows: what is accepted does to every row exactly what the filter says."""

from __future__ import annotations

import operator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

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
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from kafkalog_spark.format.layout import MAX_INT64, MIN_INT64
from kafkalog_spark.source.filters import split_filters
from tests.source.helpers.filters import EPOCH, OFFSET, PARTITION, TIMESTAMP, TOPIC, accepted, at
from tests.source.helpers.row_filters import accepts

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
def test_accepted_filters_keep_exactly_the_matching_rows(
    filters: list[Filter], table: list[tuple[str, int, int, int]]
) -> None:
    row_filter, unsupported = split_filters(filters)
    applied = [pushed for pushed in filters if not any(pushed is back for back in unsupported)]
    assert len(applied) + len(unsupported) == len(filters)
    for topic, partition, offset, ms in table:
        row = {"topic": topic, "partition": partition, "offset": offset, "timestamp": at(ms * 1000)}
        kept = row_filter.accepts_partition(topic, partition) and accepts(row_filter, offset, ms)
        assert kept == all(holds(pushed, row) for pushed in applied)
        if kept:
            assert not row_filter.keeps_nothing


@given(some_filters)
def test_in_lists_are_within_their_bounds_and_bounds_within_int64(filters: list[Filter]) -> None:
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
def test_timestamp_is_compared_as_its_microseconds(us: int) -> None:
    moment = at(us)
    assert accepted(GreaterThanOrEqual(TIMESTAMP, moment)).timestamp_from_ms == -(-us // 1000)
    for ms in (us // 1000 - 1, us // 1000, us // 1000 + 1):
        assert accepts(accepted(LessThan(TIMESTAMP, moment)), 0, ms) == (ms * 1000 < us)
