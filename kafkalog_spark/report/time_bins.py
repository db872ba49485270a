"""Sums over time in bounded memory, for any range of times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MOST_BINS = 4096
"""Bins that are kept: a chart draws 120, and what is between them and the time of a record is not seen."""
_Ints = npt.NDArray[np.int64]


class TimeBins:
    """Sums in bins of equal width (ms, a power of two), which doubles with more than MOST_BINS that hold something: a
    wrong timestamp costs one bin and no precision. starts: int64[bins], ms; sums: int64[bins, 2]."""

    def __init__(self) -> None:
        self.width_ms = 1
        self.starts: _Ints = np.zeros(0, np.int64)
        self.sums: _Ints = np.zeros((0, 2), np.int64)

    def add(self, times_ms: _Ints, values: _Ints) -> None:
        """times_ms: int64[n]; values: int64[n, 2]."""
        self._group(np.concatenate([self.starts, times_ms]), np.concatenate([self.sums, values]))
        while len(self) > MOST_BINS:
            self.widen(self.width_ms * 2)

    def widen(self, width_ms: int) -> None:
        """width_ms: a multiple of the one that it has."""
        self.width_ms = width_ms
        self._group(self.starts, self.sums)

    def _group(self, times_ms: _Ints, values: _Ints) -> None:
        bins, which = np.unique(times_ms // self.width_ms, return_inverse=True)
        self.starts, self.sums = bins * self.width_ms, np.zeros((len(bins), 2), np.int64)
        np.add.at(self.sums, which, values)

    def __len__(self) -> int:
        return len(self.starts)


@dataclass(frozen=True, slots=True)
class Span:
    """Times [start, end) in ms that are drawn."""

    start: int
    end: int


_OUTSIDE = 0.001
"""Part of all bytes that may lie before the span, and after it, when their times are far away."""
_MINUTE_MS = 60_000
_FAR = 3  # times the length of the span without them


def span_of(bins: list[TimeBins]) -> Span | None:
    """The times that a chart draws, without a few outliers; None where there are none. First sums are weights."""
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


def slices(bins: TimeBins, span: Span, count: int) -> _Ints:
    """int64[count, 2]: the sums in `count` slices of the span; what lies outside is left out."""
    made = np.zeros((count, 2), np.int64)
    inside = (bins.starts >= span.start) & (bins.starts < span.end)
    np.add.at(made, (bins.starts[inside] - span.start) * count // (span.end - span.start), bins.sums[inside])
    return made


def written_ms(bins: list[TimeBins], span: Span, count: int) -> _Ints:
    """int64[count]: how long something was written in each of `count` slices of the span. Each minute (or bin, where
    these are wider) with a record counts, so that the rate of a busy hour is not one over the empty years around it."""
    width = max(max(series.width_ms for series in bins), _MINUTE_MS)
    starts = np.unique(np.concatenate([series.starts for series in bins]))
    since = starts[(starts >= span.start) & (starts < span.end)] - span.start
    length = span.end - span.start
    used, _ = np.unique(np.stack([since * count // length, since // width]), axis=1)
    return np.minimum(np.bincount(used, minlength=count) * width, -(-length // count))
