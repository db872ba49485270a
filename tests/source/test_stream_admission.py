"""How much goes into a batch: the rules of the Kafka source's rateLimit and delayBatch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog_spark.source.batch_delay import BatchDelay
from kafkalog_spark.source.rate_limits import limited_ends, shares

SIZES = st.dictionaries(st.tuples(st.just("t"), st.integers(0, 30)), st.integers(0, 2**62), max_size=8)


def t(*offsets: int) -> dict[tuple[str, int], int]:
    return {("t", partition): offset for partition, offset in enumerate(offsets)}


# KafkaMicroBatchSourceSuite "maxOffsetsPerTrigger": 101, 11 and 1 records, cap 10
@pytest.mark.parametrize(
    ("limit", "starts", "ends", "expected"),
    [
        (10, t(0, 0, 0), t(101, 11, 1), t(8, 1, 1)),
        (10, t(8, 1, 1), t(101, 11, 1), t(17, 2, 1)),
        (10, t(0, 0), t(5, 5), t(5, 5)),
        (10, t(0, 0), t(3, 4), t(3, 4)),
        (1, t(0, 0, 0), t(10, 10, 10), t(1, 1, 1)),  # no partition starves
        (2**63 - 1, t(2**62), t(2**63 - 1), t(2**63 - 1)),  # SPARK-26718
        (5, t(7), t(7), t(7)),
        (5, t(9), t(7), t(7)),  # a log that was cut: not for the limit to judge
        (5, {}, {}, {}),
    ],
)
def test_rate_limit_divides_offsets_in_proportion_to_the_available_records(
    limit: int,
    starts: dict[tuple[str, int], int],
    ends: dict[tuple[str, int], int],
    expected: dict[tuple[str, int], int],
) -> None:
    assert limited_ends(limit, starts, ends) == expected


@given(st.integers(1, 2**63 - 1), SIZES)
def test_rate_limit_shares_exceed_the_limit_by_at_most_one_offset_per_partition(
    limit: int, sizes: dict[tuple[str, int], int]
) -> None:
    taken = shares(limit, sizes)
    assert taken.keys() == sizes.keys()
    assert all(0 <= taken[tp] <= size for tp, size in sizes.items())
    assert all(taken[tp] >= 1 for tp, size in sizes.items() if size > 0)
    assert sum(taken.values()) <= limit + sum(size > 0 for size in sizes.values())
    if sum(sizes.values()) <= limit:
        assert taken == sizes


def test_min_offsets_delays_only_later_batches_until_enough_or_max_delay() -> None:
    now = 1_000_000
    delay = BatchDelay(10_000, lambda: now)
    assert not delay.holds_back(1, 15)
    assert delay.holds_back(14, 15)
    assert not delay.holds_back(15, 15)
    now += 9_999
    assert delay.holds_back(14, 15)
    now += 1
    assert not delay.holds_back(14, 15)
    assert delay.holds_back(14, 15), "the delay begins anew with the batch that ran"
