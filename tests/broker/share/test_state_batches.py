"""Combining overlapping state batches: the winner of each offset, and the number of passes over the batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from operator import attrgetter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog_broker.share.share_state import StateBatch
from kafkalog_broker.share.state_batches import combine_batches
from tests.broker.share.helpers.lines_run import lines_run
from tests.searches import examples

FEW, MANY = 100, 400
"""With four times as many batches, one pass runs about four times as many lines, and one pass for each of them sixteen
times as many."""

STATE_BATCHES = st.lists(
    st.builds(
        lambda first, size, state, count: StateBatch(first, first + size, state, count),
        st.integers(0, 25), st.integers(0, 12), st.sampled_from([0, 2, 4]), st.integers(1, 4),
    ),
    max_size=9,
)  # fmt: skip


rank = attrgetter("delivery_count", "delivery_state")


def by_offset(batches: Sequence[StateBatch]) -> dict[int, tuple[int, int]]:
    """(count, state) of each offset; each is in one batch only."""
    found: dict[int, tuple[int, int]] = {}
    for batch in batches:
        for offset in range(batch.first_offset, batch.last_offset + 1):
            assert offset not in found, batches
            found[offset] = batch.delivery_count, batch.delivery_state
    return found


@settings(max_examples=examples(2000))
@given(so_far=STATE_BATCHES, new=STATE_BATCHES, start=st.sampled_from([-1, 0, 5, 12, 60]))
def test_highest_delivery_count_and_then_highest_state_wins(
    so_far: list[StateBatch], new: list[StateBatch], start: int
) -> None:
    highest: dict[int, tuple[int, int]] = {}
    for batch in so_far + new:
        for offset in range(max(start, batch.first_offset), batch.last_offset + 1):
            said = batch.delivery_count, batch.delivery_state
            highest[offset] = max(highest.get(offset, said), said)
    found = combine_batches(so_far, new, start)
    assert by_offset(found) == highest
    assert found == sorted(found)
    if len(found) > 1:  # equal neighbours are merged
        assert all(a.last_offset + 1 < b.first_offset or rank(a) != rank(b) for a, b in pairwise(found))


def rising(count: int) -> list[StateBatch]:
    return [StateBatch(at, at + count, 0, 1 + at % 9) for at in range(count)]


def nested(count: int) -> list[StateBatch]:
    return [StateBatch(at, 2 * count - at, 2, 1 + at) for at in range(count)]


def nested_downwards(count: int) -> list[StateBatch]:
    return [StateBatch(at, 3 * count - at, 2, count - at) for at in range(count)]


def scattered(count: int) -> list[StateBatch]:
    return [
        StateBatch(first, first + at * 6271 % 100_000, at % 3 * 2, at * 31 % 997)
        for at in range(count)
        for first in (at * 7919 % 100_003,)
    ]


@pytest.mark.parametrize("batches", [rising, nested, nested_downwards, scattered])
def test_combining_takes_one_pass(batches: Callable[[int], list[StateBatch]]) -> None:
    few, many = (lines_run(partial(combine_batches, (), batches(count), 0)) for count in (FEW, MANY))
    assert many < 8 * few
