"""Sums over time in bounded memory, whatever the times are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MOST_BINS = 4096
"""Bins that are kept: a chart draws 120, and what is between them and the time of a record is not seen."""
_Ints = npt.NDArray[np.int64]


class TimeBins:
    """Sums in bins of equal width (ms, a power of two), which doubles when there are more than MOST_BINS with something
    in them: one wrong timestamp, a thousand years away, costs one bin and no precision."""

    def __init__(self) -> None:
        self.width_ms = 1
        self._sums: dict[int, _Ints] = {}

    def add(self, times_ms: _Ints, values: _Ints) -> None:
        """times_ms: int64[n]; values: int64[n, k], with the same k at every call."""
        bins, which = np.unique(times_ms // self.width_ms, return_inverse=True)
        sums = np.zeros((len(bins), values.shape[1]), np.int64)
        np.add.at(sums, which, values)
        for at, found in zip(bins.tolist(), sums, strict=True):
            before = self._sums.get(at)
            self._sums[at] = found if before is None else before + found
        while len(self._sums) > MOST_BINS:
            self.widen(self.width_ms * 2)

    def widen(self, width_ms: int) -> None:
        """width_ms: a multiple of the one that it has."""
        times = self.starts()
        self.width_ms = width_ms
        old = self._sums
        self._sums = {}
        for at, sums in zip((times // width_ms).tolist(), old.values(), strict=True):
            before = self._sums.get(at)
            self._sums[at] = sums if before is None else before + sums

    def starts(self) -> _Ints:
        """int64[bins], ms: where each bin with something in it begins, in the order of `sums`."""
        return np.fromiter(self._sums, np.int64, len(self._sums)) * self.width_ms

    def sums(self) -> _Ints:
        """int64[bins, k]."""
        return np.array(list(self._sums.values()), np.int64)

    def __len__(self) -> int:
        return len(self._sums)


@dataclass(frozen=True, slots=True)
class Span:
    """Times [start, end) in ms that are drawn."""

    start: int
    end: int


_OUTSIDE = 0.001
"""Part of all bytes that may lie before the span, and after it, when their times are far away."""
_FAR = 3
"""Times the length of the span without them."""


def span_of(bins: list[TimeBins]) -> Span | None:
    """What a chart shows: from the first time to the last, but without a few that lie far from all others. None where
    there is nothing. The first of each value is its weight."""
    times = np.concatenate([found.starts() for found in bins if len(found)] or [np.zeros(0, np.int64)])
    if not len(times):
        return None
    weights = np.concatenate([found.sums()[:, 0] for found in bins if len(found)])
    width = max(found.width_ms for found in bins)
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
    """int64[count, k]: the sums in `count` slices of the span; what lies outside is left out."""
    sums = bins.sums()
    made = np.zeros((count, sums.shape[1] if len(bins) else 1), np.int64)
    if not len(bins):
        return made
    starts = bins.starts()
    inside = (starts >= span.start) & (starts < span.end)
    where = (starts[inside] - span.start) * count // (span.end - span.start)
    np.add.at(made, where, sums[inside])
    return made
