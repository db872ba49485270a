"""Selection of a segment's undamaged batches that can form one log.

Base offset and leader epoch lie outside a batch's CRC, so a valid batch may have wrong ones. As many batches as
possible with increasing offsets are kept. A leader epoch that does not fit its neighbours is rewritten, because the
records do not depend on it.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
import numpy.typing as npt

from kafkalog_spark.format.index_file import MAX_RELATIVE_OFFSET
from kafkalog_spark.format.layout import MAX_INT64, NO_LEADER_EPOCH, HeaderColumn
from kafkalog_spark.log.read.header_windows import Table

Rows = npt.NDArray[np.bool_]


def fitting(table: Table, base_offset: int, next_base_offset: int | None, last_offset: int) -> Rows:
    """Return which batches to keep, bool[n]: the longest chain of batches with increasing offsets.

    Args:
        table: Header table of the batches.
        base_offset: Base offset of the segment.
        next_base_offset: Base offset of the next segment; None for the last one.
        last_offset: Last offset of the batch before.
    """
    # BASE_OFFSET of a wrapper is its last offset, because its header does not have the first one.
    base, last = table[:, HeaderColumn.BASE_OFFSET], table[:, HeaderColumn.LAST_OFFSET]
    end = MAX_INT64 if next_base_offset is None else next_base_offset
    lowest = max(base_offset, last_offset + 1)
    possible = (base >= lowest) & (last >= base) & (last < end) & (last - base_offset <= MAX_RELATIVE_OFFSET)
    rows = np.flatnonzero(possible)
    if (base[rows][1:] > last[rows][:-1]).all():
        return possible
    keep = np.zeros(len(table), bool)
    keep[rows[_longest_chain(base[rows], last[rows])]] = True
    return keep


def true_epochs(epochs: npt.NDArray[np.int64], highest: int) -> npt.NDArray[np.int64]:
    """Return the corrected leader epochs, int64[n], which never decrease.

    The epochs of the longest non-decreasing chain are kept; each other batch gets the epoch of the batch before it.

    Args:
        epochs: Leader epochs of the batches, int64[n].
        highest: Leader epoch of the batch before.
    """
    rising = np.maximum.accumulate(np.concatenate(([highest], epochs)))[1:]
    if (epochs == rising).all() or (epochs == NO_LEADER_EPOCH).all():
        return epochs
    rows = np.flatnonzero(epochs >= highest)
    rows = rows[_longest_chain(epochs[rows] + 1, epochs[rows])]  # + 1, because equal epochs may follow each other
    trusted = np.full(len(epochs), highest, np.int64)
    trusted[rows] = epochs[rows]
    return np.maximum.accumulate(trusted)


def _longest_chain(firsts: npt.NDArray[np.int64], lasts: npt.NDArray[np.int64]) -> list[int]:
    """Return the rows of the longest chain in which each `first` is above the `last` of the row before."""
    ends: list[int] = []  # by length of a chain: the lowest `last` of its final row
    rows: list[int] = []  # by length of a chain: that row
    before = [-1] * len(firsts)
    for row, (first, last) in enumerate(zip(firsts.tolist(), lasts.tolist(), strict=True)):
        length = bisect_left(ends, first)
        before[row] = rows[length - 1] if length else -1
        if length == len(ends):
            ends.append(last)
            rows.append(row)
        elif last < ends[length]:
            ends[length], rows[length] = last, row
    chain = []
    row = rows[-1] if rows else -1
    while row >= 0:
        chain.append(row)
        row = before[row]
    return chain[::-1]
