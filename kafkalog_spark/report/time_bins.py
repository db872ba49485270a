"""Sums over time in bounded memory, for any range of times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MAX_BINS = 4096
"""Largest number of bins: many times the 120 slices that a chart draws."""
Ints = npt.NDArray[np.int64]
_OUTSIDE = 0.001
"""Fraction of all bytes that may be outside of the span on either side, if their times are far away."""
_MINUTE_MS = 60_000
_FAR = 3  # outliers are far away if the span with them is this many times as long


class TimeBins:
    """Sums in bins of equal width.

    The width doubles when more than MAX_BINS bins are not empty. Empty bins are not stored, so a wrong timestamp costs
    one bin and no precision.

    Attributes:
        width_ms: Width of the bins, a power of two.
        starts: Starts of the bins that are not empty in ms, int64[bins].
        sums: Sums of the bins, int64[bins, 2].
    """

    def __init__(self) -> None:
        self.width_ms = 1
        self.starts: Ints = np.zeros(0, np.int64)
        self.sums: Ints = np.zeros((0, 2), np.int64)

    def add(self, times_ms: Ints, values: Ints) -> None:
        """Add values (int64[n, 2]) at times in ms (int64[n])."""
        self._group(np.concatenate([self.starts, times_ms]), np.concatenate([self.sums, values]))
        while len(self) > MAX_BINS:
            self.widen(self.width_ms * 2)

    def widen(self, width_ms: int) -> None:
        """Change the width of the bins to a multiple of the present one."""
        self.width_ms = width_ms
        self._group(self.starts, self.sums)

    def _group(self, times_ms: Ints, values: Ints) -> None:
        bins, bin_of_value = np.unique(times_ms // self.width_ms, return_inverse=True)
        self.starts, self.sums = bins * self.width_ms, np.zeros((len(bins), 2), np.int64)
        np.add.at(self.sums, bin_of_value, values)

    def __len__(self) -> int:
        return len(self.starts)


@dataclass(frozen=True, slots=True)
class Span:
    """Time range [start, end) in ms that a chart draws."""

    start: int
    end: int


def span_of(bins: list[TimeBins]) -> Span | None:
    """Return the time range to draw, without a few outliers; None if there are no times.

    The first sum of each bin is its weight.
    """
    if not any(map(len, bins)):
        return None
    times = np.concatenate([series.starts for series in bins])
    weights = np.concatenate([series.sums[:, 0] for series in bins])
    width = max(series.width_ms for series in bins)
    order = np.argsort(times, kind="stable")
    times, below = times[order], np.cumsum(weights[order])
    total = int(below[-1])
    first = int(times[np.searchsorted(below, total * _OUTSIDE, side="right")]) if total else int(times[0])
    last = int(times[np.searchsorted(below, total * (1 - _OUTSIDE))]) if total else int(times[-1])
    inner = last - first + width
    if int(times[-1]) - int(times[0]) + width <= _FAR * inner:
        first, last = int(times[0]), int(times[-1])
    return Span(first, last + width)


def slices(bins: TimeBins, span: Span, count: int) -> Ints:
    """Return the sums in `count` equal slices of the span, int64[count, 2], without the times outside of it."""
    sums = np.zeros((count, 2), np.int64)
    inside = (bins.starts >= span.start) & (bins.starts < span.end)
    np.add.at(sums, (bins.starts[inside] - span.start) * count // (span.end - span.start), bins.sums[inside])
    return sums


def written_ms(bins: list[TimeBins], span: Span, count: int) -> Ints:
    """Return the time in ms in which records were written, for each of `count` slices of the span (int64[count]).

    Each minute with a record counts, or each bin if bins are wider. So a rate is that of the busy time, and does
    not include the empty years around it.
    """
    width = max(max(series.width_ms for series in bins), _MINUTE_MS)
    starts = np.unique(np.concatenate([series.starts for series in bins]))
    since = starts[(starts >= span.start) & (starts < span.end)] - span.start
    length = span.end - span.start
    used, _ = np.unique(np.stack([since * count // length, since // width]), axis=1)
    return np.minimum(np.bincount(used, minlength=count) * width, -(-length // count))
