"""Selects a segment's undamaged batches that can form one log.

Base offset and leader epoch are outside a batch's CRC, so a valid batch may have wrong ones. As many batches as
possible with increasing offsets are kept. A leader epoch that does not fit its neighbours is rewritten, because the
records do not depend on it.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
import numpy.typing as npt

from kafkalog_spark.format.index_file import MAX_RELATIVE_OFFSET
from kafkalog_spark.format.layout import MAX_INT64, NO_LEADER_EPOCH, HeaderColumn
from kafkalog_spark.log.read.header_windows import HeaderTable

BatchMask = npt.NDArray[np.bool_]
"""bool[n]: a value for each row of a header table."""


def select_fitting_batches(
    table: HeaderTable, base_offset: int, next_base_offset: int | None, last_offset: int
) -> BatchMask:
    """Return which batches to keep: the longest chain of batches with increasing offsets.

    Args:
        table: Header table of the batches.
        base_offset: Base offset of the segment.
        next_base_offset: Base offset of the next segment; None for the last one.
        last_offset: Last offset of the batch before the first one in `table`.
    """
    # The BASE_OFFSET of a wrapper is its last offset, because its header does not have the first one.
    base, last = table[:, HeaderColumn.BASE_OFFSET], table[:, HeaderColumn.LAST_OFFSET]
    end = MAX_INT64 if next_base_offset is None else next_base_offset
    lowest = max(base_offset, last_offset + 1)
    possible = (base >= lowest) & (last >= base) & (last < end) & (last - base_offset <= MAX_RELATIVE_OFFSET)
    rows = np.flatnonzero(possible)
    if (base[rows][1:] > last[rows][:-1]).all():
        return possible
    is_kept = np.zeros(len(table), bool)
    is_kept[rows[_longest_chain(base[rows], last[rows])]] = True
    return is_kept


def correct_leader_epochs(epochs: npt.NDArray[np.int64], previous: int) -> npt.NDArray[np.int64]:
    """Return the corrected leader epochs, int64[n], which never decrease.

    The epochs of the longest non-decreasing chain are kept; each other batch gets the epoch of the batch before it.

    Args:
        epochs: Leader epochs of the batches, int64[n].
        previous: Leader epoch of the batch before the first one.
    """
    rising = np.maximum.accumulate(np.concatenate(([previous], epochs)))[1:]
    if (epochs == rising).all() or (epochs == NO_LEADER_EPOCH).all():
        return epochs
    rows = np.flatnonzero(epochs >= previous)
    rows = rows[_longest_chain(epochs[rows] + 1, epochs[rows])]  # + 1, because equal epochs may follow each other
    trusted = np.full(len(epochs), previous, np.int64)
    trusted[rows] = epochs[rows]
    return np.maximum.accumulate(trusted)


def _longest_chain(firsts: npt.NDArray[np.int64], lasts: npt.NDArray[np.int64]) -> list[int]:
    """Return the rows of the longest chain in which each `first` is above the `last` of the row before.

    This is patience sorting, as for the longest increasing subsequence.
    """
    # Entry n is about the best chain of n + 1 rows so far, the one that ends with the lowest `last`.
    lowest_lasts: list[int] = []
    final_rows: list[int] = []
    previous_rows = [-1] * len(firsts)  # for each row, the row before it in its best chain
    for row, (first, last) in enumerate(zip(firsts.tolist(), lasts.tolist(), strict=True)):
        length = bisect_left(lowest_lasts, first)
        previous_rows[row] = final_rows[length - 1] if length else -1
        if length == len(final_rows):
            lowest_lasts.append(last)
            final_rows.append(row)
        elif last < lowest_lasts[length]:
            lowest_lasts[length], final_rows[length] = last, row
    chain = []
    row = final_rows[-1] if final_rows else -1
    while row >= 0:
        chain.append(row)
        row = previous_rows[row]
    return chain[::-1]
