"""State batches: runs of offsets that have been delivered equally often and are in the same state.

`combined` is what PersisterStateBatchCombiner does: what is written of a share partition over and over becomes one list
without overlaps. Where two say different things of an offset, the higher delivery count wins, then the later state.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple


class StateBatch(NamedTuple):
    """The offsets [first_offset, last_offset]. delivery_state: RecordState as a number."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int

    @property
    def rank(self) -> tuple[int, int]:
        """The higher one wins."""
        return self.delivery_count, self.delivery_state


NO_START_OFFSET = -1


def combined(so_far: Iterable[StateBatch], new: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """Batches without overlaps, in order; nothing below `start_offset`, unless that is not known (-1).

    One sweep over the edges of all of them: at each, what covers the next offsets with the highest rank counts.
    """
    batches = [*so_far, *new]
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
    covering: list[tuple[int, int, int]] = []  # (-count, -state, last offset): the highest rank first
    at = 0
    for edge, next_edge in pairwise(edges):
        while at < len(batches) and batches[at].first_offset <= edge:
            batch = batches[at]
            heappush(covering, (-batch.delivery_count, -batch.delivery_state, batch.last_offset))
            at += 1
        while covering and covering[0][2] < edge:
            heappop(covering)
        if covering:
            count, state, _ = covering[0]
            _append(result, StateBatch(edge, next_edge - 1, -state, -count))
    return result


def _append(result: list[StateBatch], batch: StateBatch) -> None:
    if result and result[-1].last_offset + 1 == batch.first_offset and result[-1].rank == batch.rank:
        result[-1] = result[-1]._replace(last_offset=batch.last_offset)
    else:
        result.append(batch)
