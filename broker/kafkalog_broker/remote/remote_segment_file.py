"""A remote segment as the broker reads it: positions of offsets by its remote indexes, batches by ranges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafkalog_broker.storage.partition.log_segment import TimedSegment
from kafkalog_spark.format.offset_index import OffsetIndex, parse_offset_index
from kafkalog_spark.format.time_index import TimeIndex, parse_time_index
from kafkalog_spark.format.transaction_index import AbortedTransaction, parse_transaction_index
from kafkalog_spark.log.remote.remote_storage import RemoteStorage
from kafkalog_spark.log.tiered.remote_names import RemoteFile, RemoteSegment

_AHEAD = 64 << 10
"""Bytes read at once while batches are looked for: more than lie between two entries of an index, as a rule."""


class RemoteSegmentFile(TimedSegment):
    """Blocks: for worker threads, one at a time. Raises RemoteStorageError and what RemoteStorage.fetch raises."""

    def __init__(self, storage: RemoteStorage, segment: RemoteSegment) -> None:
        self.segment = segment
        self.base_offset = segment.start_offset
        self.log_path = f"{segment.name}.log"
        self.found_by_time: dict[tuple[int, int, int], Any] = {}
        self.fetched_bytes = 0
        self._storage = storage
        self._index: OffsetIndex | None = None
        self._held_at, self._held = 0, b""

    @property
    def size(self) -> int:
        return self.segment.size

    def handle(self) -> RemoteSegmentFile:
        return self

    def read(self, position: int, size: int) -> bytes:
        """The bytes [position, position + size), fewer only at the end; what is read within them next needs no further
        request."""
        at = position - self._held_at
        if not 0 <= at <= at + min(size, self.size - position) <= len(self._held):
            self._held = self._storage.fetch(self.segment, position, position + max(size, _AHEAD))
            self._held_at, at = position, 0
            self.fetched_bytes += len(self._held)
        return self._held[at : at + size]

    def time_index(self) -> TimeIndex:
        return parse_time_index(self._storage.fetch_index(self.segment, RemoteFile.TIME_INDEX), self.base_offset)

    def aborted(self) -> Sequence[AbortedTransaction]:
        """The entries of the transaction index."""
        if self.segment.transaction_index_empty:
            return ()
        data = self._storage.fetch_index(self.segment, RemoteFile.TRANSACTION_INDEX)
        return parse_transaction_index(data, self.base_offset)

    def _index_floor(self, target: int, field: int) -> int:
        if self._index is None:
            data = self._storage.fetch_index(self.segment, RemoteFile.OFFSET_INDEX)
            self._index = parse_offset_index(data, self.base_offset)
        entry = self._index.floor_position(target) if field else self._index.floor(self.base_offset + target)
        return entry.position if entry.position < self.size else 0
