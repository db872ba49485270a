"""Selection of a segment's undamaged batches that can form one log.

Base offset and leader epoch lie outside a batch's CRC, so a valid batch may have wrong ones. As many batches as
possible with increasing offsets are kept. A leader epoch that does not fit its neighbours is rewritten, because the
records do not depend on it.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kafkalog_spark.format.index_file import MAX_RELATIVE_OFFSET
from kafkalog_spark.format.layout import MAX_INT64, NO_LEADER_EPOCH, HeaderColumn
from kafkalog_spark.log.read.segment_file import Table

if TYPE_CHECKING:
    pass  # loads the kernels

Rows = npt.NDArray[np.bool_]


def fitting(table: Table, base_offset: int, next_base_offset: int | None, last_offset: int) -> Rows:
    """bool[n]: which batches are kept after `last_offset`, in a segment [base_offset, next_base_offset)."""
    # of a wrapper the first offset is not known: what its header says is its last one
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
    """int64[n]: the leader epochs that batches are given, none below `highest`, that of the batch before. Those of the
    longest chain that does not fall are believed, and stand for what lies between."""
    rising = np.maximum.accumulate(np.concatenate(([highest], epochs)))[1:]
    if (epochs == rising).all() or (epochs == NO_LEADER_EPOCH).all():
        return epochs
    rows = np.flatnonzero(epochs >= highest)
    rows = rows[_longest_chain(epochs[rows] + 1, epochs[rows])]  # an epoch may follow itself
    believed = np.full(len(epochs), highest, np.int64)
    believed[rows] = epochs[rows]
    return np.maximum.accumulate(believed)


def _longest_chain(firsts: npt.NDArray[np.int64], lasts: npt.NDArray[np.int64]) -> list[int]:
    """Rows of the longest chain in which each `first` is above the `last` before it."""
    ends: list[int] = []  # the lowest `last` of a chain of each length
    rows: list[int] = []  # and the row that ends it
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
