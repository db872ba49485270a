"""Conditions on rows that a read applies itself, so that Spark need not apply them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kafkalog_spark.format.layout import MAX_INT64, MIN_INT64

# Python compares strings by code point, which is the order of their UTF-8 bytes and Spark's default collation.
TESTS: dict[str, Callable[[Any, Any], bool]] = {
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
"""Comparisons by the name of Spark's filter."""


@dataclass(frozen=True, slots=True)
class PartitionTest:
    """Condition on "topic" or "partition".

    Attributes:
        column: "topic" or "partition".
        op: Key of TESTS.
        value: A str, int or Fraction; for "In" a frozenset of them.
        negated: True if the comparison must fail.
    """

    column: str
    op: str
    value: Any
    negated: bool = False

    def accepts(self, topic: str, partition: int) -> bool:
        """Return True if a partition satisfies the condition."""
        actual = topic if self.column == "topic" else partition
        return bool(TESTS[self.op](actual, self.value)) is not self.negated


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Conditions on rows, all of which must hold. The default keeps every row.

    Bounds are half open and fit into int64. An upper bound of 2**63 - 1 means no bound: no row has that offset, because
    the log end offset would not fit, and none has that timestamp, because it would not fit in microseconds. `offset_in`
    and `timestamp_in_ms` are sorted, distinct and within the bounds; None means no list.
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
        """True if no row can satisfy the conditions."""
        return self.offset_from >= self.offset_until or self.timestamp_from_ms >= self.timestamp_until_ms

    def accepts_partition(self, topic: str, partition: int) -> bool:
        """Return True if rows of a partition can satisfy the conditions."""
        return all(test.accepts(topic, partition) for test in self.partition_tests)
