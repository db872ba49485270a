"""Up to where a partition of __share_group_state is superseded (Kafka's ShareCoordinatorOffsetsManager)."""

from __future__ import annotations

from heapq import heappop, heappush

from kafkalog_broker.share.state.state_records import SharePartitionKey


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

    def first_needed(self) -> int:
        """Records below may be deleted; 0 where none may. With nothing known any more, the last tombstone stays."""
        while self._heap and self._last.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else self._end
