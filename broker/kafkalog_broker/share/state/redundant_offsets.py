"""Up to where a partition of __share_group_state is superseded (Kafka's ShareCoordinatorOffsetsManager)."""

from __future__ import annotations

from heapq import heappop, heappush

from kafkalog_broker.share.state.state_records import SharePartitionKey

_DROPPED = 2
"""What is superseded goes as snapshots come, more than one for each: else all of it would when somebody asks."""


class RedundantOffsets:
    """Each share partition needs its last snapshot and what follows: below the smallest of these nothing is needed."""

    def __init__(self) -> None:
        self._last: dict[SharePartitionKey, int] = {}
        self._heap: list[tuple[int, SharePartitionKey]] = []
        self._end = 0
        """After the last snapshot or tombstone that was seen."""

    def moved(self, key: SharePartitionKey, offset: int, *, is_gone: bool) -> None:
        """A snapshot, or a tombstone, lies at `offset`."""
        if is_gone:
            self._last.pop(key, None)
        else:
            self._last[key] = offset
            heappush(self._heap, (offset, key))
        self._end = max(self._end, offset)
        for _ in range(_DROPPED):
            self._drop_first()

    def first_needed(self) -> int:
        """Records below may be deleted; 0 where none may. With nothing known any more, the last tombstone stays."""
        while self._drop_first():
            pass
        return self._heap[0][0] if self._heap else self._end

    def _drop_first(self) -> bool:
        """Whether the first was superseded, which is gone then."""
        if not self._heap or self._last.get(self._heap[0][1]) == self._heap[0][0]:
            return False
        heappop(self._heap)
        return True
