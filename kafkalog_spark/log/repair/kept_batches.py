"""Which of a segment's good batches can stand in one log together. Decisions on header tables.

Base offset and leader epoch lie outside a batch's CRC: a batch may be good, and say of itself what cannot be. Offsets
must rise from batch to batch, and the batches that do so together, as many as there are, are kept. A leader epoch that
falls out of line is written again: it says nothing of the records.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import numpy as np
import numpy.typing as npt

from kafkalog_spark.log.format.index_file import MAX_RELATIVE_OFFSET
from kafkalog_spark.log.format.layout import MAX_INT64, NO_LEADER_EPOCH, H
from kafkalog_spark.log.read.header_windows import Table

Rows = npt.NDArray[np.bool_]


def fitting(table: Table, base_offset: int, next_base_offset: int | None, last_offset: int) -> Rows:
    """bool[n]: which batches are kept after `last_offset`, in a segment [base_offset, next_base_offset)."""
    base, last = table[:, H.BASE_OFFSET], table[:, H.LAST_OFFSET]
    # of a wrapper the first offset is not known: what its header says is its last one
    end = MAX_INT64 if next_base_offset is None else next_base_offset
    lowest = max(base_offset, last_offset + 1)
    possible = (base >= lowest) & (last >= base) & (last < end) & (last - base_offset <= MAX_RELATIVE_OFFSET)
    rows = np.flatnonzero(possible)
    if (base[rows][1:] > last[rows][:-1]).all():
        return possible
    keep = np.zeros(len(table), bool)
    keep[rows[_longest_chain(base[rows].tolist(), last[rows].tolist())]] = True
    return keep


def _longest_chain(base: list[int], last: list[int]) -> list[int]:
    """Places of the longest row of intervals [base, last] that follow each other."""
    ends: list[int] = []  # the lowest last offset of a chain of so many
    places: list[int] = []  # and the interval that ends it
    before = [-1] * len(base)
    for at, (first, end) in enumerate(zip(base, last, strict=True)):
        length = bisect_left(ends, first)
        before[at] = places[length - 1] if length else -1
        if length == len(ends):
            ends.append(end)
            places.append(at)
        elif end < ends[length]:
            ends[length], places[length] = end, at
    chain = []
    at = places[-1] if places else -1
    while at >= 0:
        chain.append(at)
        at = before[at]
    return chain[::-1]


def true_epochs(epochs: npt.NDArray[np.int64], highest: int) -> npt.NDArray[np.int64]:
    """int64[n]: the leader epochs that batches are given, none below `highest`, that of the batch before.

    Those of the longest row that does not fall are believed, and stand for what lies between.
    """
    given = np.maximum.accumulate(np.concatenate(([highest], epochs)))[1:]
    if (epochs == given).all() or (epochs == NO_LEADER_EPOCH).all():
        return epochs
    ends: list[int] = []
    places: list[int] = []
    before = [-1] * len(epochs)
    for at, epoch in enumerate(epochs.tolist()):
        if epoch < highest:
            continue
        length = bisect_right(ends, epoch)
        before[at] = places[length - 1] if length else -1
        if length == len(ends):
            ends.append(epoch)
            places.append(at)
        else:
            ends[length], places[length] = epoch, at
    believed = np.full(len(epochs), highest, np.int64)
    at = places[-1] if places else -1
    while at >= 0:
        believed[at] = epochs[at]
        at = before[at]
    found: npt.NDArray[np.int64] = np.maximum.accumulate(believed)
    return found
