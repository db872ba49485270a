"""Combines overlapping state batches (Kafka's PersisterStateBatchCombiner)."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import pairwise

from kafkalog_broker.share.share_state import NO_START_OFFSET, StateBatch


def combine_batches(old: Iterable[StateBatch], new: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """Return batches in offset order that do not overlap, with adjacent equal batches merged.

    Where batches overlap, the one with the higher delivery count wins, then the one with the higher state. A sweep over
    all first and last offsets finds the winner of each interval, so the time grows with the number of batches and not
    with the number of overlaps.

    Args:
        start_offset: Offsets below it are dropped, unless it is NO_START_OFFSET.
    """
    batches = [*old, *new]
    if start_offset != NO_START_OFFSET:
        batches = [
            batch if batch.first_offset >= start_offset else batch._replace(first_offset=start_offset)
            for batch in batches
            if batch.last_offset >= start_offset
        ]
    if len(batches) < 2:
        return batches
    batches.sort()
    edges = sorted({edge for batch in batches for edge in (batch.first_offset, batch.last_offset + 1)})
    result: list[StateBatch] = []
    covering: list[tuple[int, int, int]] = []  # heap of (-delivery count, -state, last offset): the winner first
    next_batch = 0
    for edge, next_edge in pairwise(edges):
        while next_batch < len(batches) and batches[next_batch].first_offset <= edge:
            batch = batches[next_batch]
            heappush(covering, (-batch.delivery_count, -batch.delivery_state, batch.last_offset))
            next_batch += 1
        while covering and covering[0][2] < edge:
            heappop(covering)
        if covering:
            count, state, _ = covering[0]
            previous = result[-1] if result else None
            if previous is not None and previous[1:] == (edge - 1, -state, -count):
                result[-1] = previous._replace(last_offset=next_edge - 1)
            else:
                result.append(StateBatch(edge, next_edge - 1, -state, -count))
    return result
