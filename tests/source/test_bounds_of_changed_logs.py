"""Bounds in a log that does not hold them, or that has changed since they were resolved."""

from __future__ import annotations

import logging
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog_spark.errors import DataLoss, OffsetOutOfRange
from kafkalog_spark.source import late_binding
from kafkalog_spark.source.bound_resolution import LogBounds, resolve_bounds
from kafkalog_spark.source.bounds import AT_EARLIEST, AT_LATEST
from kafkalog_spark.source.offset_range import OffsetRange, cut_range
from tests.source.helpers.bound_logs import LOST, T0, edges, log, offsets


def rebind(planned: OffsetRange, log_start: int, log_end: int, *, fail_on_data_loss: bool = True) -> OffsetRange:
    bounds = LogBounds(log_start, log_end, lambda timestamp: pytest.fail("a task looks up no timestamp"))
    return late_binding.rebind(planned, bounds, fail_on_data_loss=fail_on_data_loss)


@pytest.mark.parametrize(
    ("start", "end", "left", "first_lost"),
    [
        (2, 8, (4, 8), 2),
        (6, 12, (6, 10), 10),
        (0, 20, (4, 10), 0),
        (0, 3, (4, 4), 0),
        (11, 15, (10, 10), 11),
    ],
)
def test_offsets_outside_the_log_are_data_loss(
    start: int, end: int, left: tuple[int, int], first_lost: int, caplog: pytest.LogCaptureFixture
) -> None:
    bounds = offsets({T0: start}), offsets({T0: end})
    held = "the log holds [4, 10)" if end > 10 else "the log begins at offset 4"
    reason = f"Could not read records in offset [{start}, {end}) for topic partition t-0: {held}."
    with pytest.raises(DataLoss) as caught:
        resolve_bounds(*bounds, {T0: log(4, 10)})
    assert caught.value.what == LOST + reason
    assert (caught.value.topic_partition, caught.value.offset) == ("t-0", first_lost)
    with caplog.at_level(logging.WARNING, logger="kafkalog_spark"):
        assert edges(resolve_bounds(*bounds, {T0: log(4, 10)}, fail_on_data_loss=False)) == [left]
    assert caplog.messages == [f"{reason} failOnDataLoss is false: reading what is left."]


def test_empty_range_is_no_data_loss() -> None:
    assert edges(resolve_bounds(offsets({T0: 2}), offsets({T0: 2}), {T0: log(4, 10)})) == [(2, 2)]


@given(
    log_start=st.integers(0, 20),
    log_size=st.integers(0, 20),
    start=st.integers(0, 50),
    size=st.integers(0, 30),
)
def test_fail_on_data_loss_false_reads_exactly_the_remaining_records(
    log_start: int, log_size: int, start: int, size: int
) -> None:
    logs = {T0: log(log_start, log_start + log_size)}
    (only,) = resolve_bounds(offsets({T0: start}), offsets({T0: start + size}), logs, fail_on_data_loss=False)
    left = set(range(start, start + size)) & set(range(log_start, log_start + log_size))
    assert set(range(only.start, only.end)) == left
    assert only.size >= 0


def test_late_bound_bounds_follow_the_log() -> None:
    (planned,) = resolve_bounds(AT_EARLIEST, AT_LATEST, {T0: log(5, 9)})
    assert edges([rebind(planned, 7, 12)]) == [(7, 12)]
    assert edges([rebind(planned, 0, 2)]) == [(0, 2)]  # deleted and created again
    assert edges([rebind(planned, 12, 12)]) == [(12, 12)]
    (start_only,) = resolve_bounds(AT_EARLIEST, offsets({T0: 8}), {T0: log(5, 9)})
    assert edges([rebind(start_only, 7, 12)]) == [(7, 8)]
    assert edges([rebind(start_only, 10, 12)]) == [(8, 8)]
    (end_only,) = resolve_bounds(offsets({T0: 6}), AT_LATEST, {T0: log(5, 9)})
    assert edges([rebind(end_only, 5, 12)]) == [(6, 12)]


def test_explicit_bounds_stay_and_missing_records_are_data_loss() -> None:
    asked = OffsetRange("t", 0, 6, 8)
    assert rebind(asked, 5, 20) == asked
    with pytest.raises(DataLoss, match=r"\[6, 8\) for topic partition t-0: the log begins at offset 7\."):
        rebind(asked, 7, 20)
    assert edges([rebind(asked, 7, 20, fail_on_data_loss=False)]) == [(7, 8)]
    with pytest.raises(DataLoss):
        rebind(asked, 0, 7)
    with pytest.raises(OffsetOutOfRange, match="The resolved start offset 6 is greater than the resolved end offset 4"):
        rebind(OffsetRange("t", 0, 6, 9, end_is_latest=True), 0, 4)


def test_split_from_earliest_that_retention_overtook_is_no_data_loss() -> None:
    (planned,) = resolve_bounds(AT_EARLIEST, AT_LATEST, {T0: log(0, 30)})
    pieces = cut_range(planned, [10, 20])
    assert edges(pieces) == [(0, 10), (10, 20), (20, 30)]
    assert edges([rebind(piece, 15, 33) for piece in pieces]) == [(10, 10), (15, 20), (20, 33)]


@given(
    planned=st.tuples(st.integers(0, 30), st.integers(0, 30)),
    grown=st.tuples(st.integers(0, 60), st.integers(0, 30)),
    cuts=st.lists(st.integers(-5, 70), max_size=5).map(sorted),
)
def test_splits_rebound_later_cover_every_offset_once(
    planned: tuple[int, int], grown: tuple[int, int], cuts: list[int]
) -> None:
    start, end = planned[0], sum(planned)
    (whole,) = resolve_bounds(AT_EARLIEST, AT_LATEST, {T0: log(start, end)})
    later_start, later_end = start + grown[0], max(end, start + grown[0]) + grown[1]
    pieces = [rebind(piece, later_start, later_end) for piece in cut_range(whole, cuts)]
    read = [offset for piece in pieces for offset in range(piece.start, piece.end)]
    assert read == list(range(later_start, later_end))


def test_offset_range_survives_pickling() -> None:
    asked = OffsetRange("t", 0, 6, 9, end_is_latest=True)
    assert pickle.loads(pickle.dumps(asked)) == asked
