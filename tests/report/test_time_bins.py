"""Sums over time: nothing is lost, memory is bounded, and one wrong clock does not flatten the picture."""

from __future__ import annotations

import numpy as np

from kafkalog_spark.report.time_bins import MAX_BINS, Span, TimeBins, slices, span_of, written_ms

HOUR = 3_600_000


def filled(times: list[int], weight: int = 1) -> TimeBins:
    bins = TimeBins()
    for part in np.array_split(np.array(times, np.int64), 7):
        bins.add(part, np.stack([np.full(len(part), weight), np.ones(len(part), np.int64)], 1))
    return bins


def test_bins_become_wider_and_keep_every_sum() -> None:
    times = np.random.default_rng(1).integers(0, 1000 * HOUR, 20_000)
    bins = filled(times.tolist(), 3)
    assert len(bins) <= MAX_BINS
    assert bins.width_ms > 1000 * HOUR // (2 * MAX_BINS)
    assert bins.sums.sum(axis=0).tolist() == [60_000, 20_000]
    expected = dict(zip(*np.unique(times // bins.width_ms * bins.width_ms, return_counts=True), strict=True))
    assert dict(zip(bins.starts.tolist(), bins.sums[:, 1].tolist(), strict=True)) == expected


def test_slices_equal_the_sums_of_their_times() -> None:
    bins = filled([0, 1, 2, 10, 11, 19, 20])
    assert slices(bins, Span(0, 20), 4)[:, 1].tolist() == [3, 0, 2, 1]


def test_written_time_counts_only_minutes_with_records() -> None:
    hour = list(range(0, HOUR, 10_000))
    year = 365 * 24 * HOUR
    bins = [filled([0, *(year + at for at in hour)]), filled([year + 5, year + HOUR // 2])]
    assert written_ms(bins, Span(0, 2 * year), 2).tolist() == [60_000, HOUR]
    assert written_ms([filled([0, 500, 2500])], Span(0, 3000), 3).tolist() == [1000, 0, 1000]


def test_few_outlying_times_are_excluded_from_the_span_and_many_are_not() -> None:
    usual = list(range(0, 1000 * HOUR, HOUR // 4))
    wrong = filled([*usual, 10**15, -(10**12)])
    span = span_of([wrong])
    assert span is not None
    assert -HOUR <= span.start <= 10 * HOUR
    assert 990 * HOUR <= span.end <= 1001 * HOUR
    everything = span_of([filled(usual), filled([10**12] * 500)])
    assert everything is not None
    assert everything.start == 0
    assert everything.end > 10**12


def test_no_times_give_no_span() -> None:
    assert span_of([]) is None
    assert span_of([TimeBins()]) is None
    assert slices(TimeBins(), Span(0, 10), 2).tolist() == [[0, 0], [0, 0]]
