"""One remote segment: search for batches by its indexes, and reads of its .log (see `SegmentLookup`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafkalog_broker.storage.partition.segment_lookup import SCAN_READ, BatchEnd, SegmentEnd, SegmentLookup
from kafkalog_spark.errors import CorruptIndex, CorruptLog
from kafkalog_spark.format.offset_index import OffsetIndex, parse_offset_index
from kafkalog_spark.format.time_index import TimeIndex, parse_time_index
from kafkalog_spark.format.transaction_index import AbortedTransaction, parse_transaction_index
from kafkalog_spark.log.remote.remote_storage import RemoteStorage
from kafkalog_spark.log.tiered.object_keys import RemoteFile
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment

_READ_AHEAD = 64 << 10  # bytes per request in the search for a batch: usually more than between two index entries


class RemoteSegmentFile(SegmentLookup):
    """Remote segment with its indexes. Methods block; use it on one thread at a time.

    All methods raise RemoteStorageError and the other errors of `RemoteStorage.fetch`.

    Attributes:
        fetched_bytes: Number of bytes of the .log fetched so far.
    """

    def __init__(self, storage: RemoteStorage, segment: RemoteSegment) -> None:
        self.segment = segment
        self.base_offset = segment.start_offset
        self.end = SegmentEnd(segment.size, segment.until)
        self.log_path = f"{segment.name}.log"
        self.time_lookup_cache: dict[tuple[int, int, int], Any] = {}
        self.fetched_bytes = 0
        self._storage = storage
        self._index: OffsetIndex | None = None
        self._buffer_at, self._buffer = 0, b""

    def handle(self) -> RemoteSegmentFile:
        return self

    def read(self, position: int, size: int) -> bytes:
        """Return the bytes [position, position + size), fewer only at the end. Bytes already fetched need no request.

        Raises:
            CorruptLog: If remote storage has fewer bytes than the segment's metadata says.
        """
        at = self._fetch_into_buffer(position, size)
        return self._buffer[at : at + size]

    def _fetch_into_buffer(self, position: int, size: int) -> int:
        """Make sure that the buffer contains the bytes that `read` returns, and return their position in it.

        Raises CorruptLog.
        """
        at = position - self._buffer_at
        expected = min(size, self.size - position)
        if 0 <= at <= at + expected <= len(self._buffer):
            return at
        self._buffer = self._storage.fetch(self.segment, position, position + max(size, _READ_AHEAD))
        self._buffer_at = position
        self.fetched_bytes += len(self._buffer)
        if len(self._buffer) < expected:
            raise CorruptLog(
                f"remote storage has {len(self._buffer)} bytes of the segment from byte {position} on, expected "
                f"{self.size - position}: the segment has {self.size} bytes by __remote_log_metadata",
                path=self.log_path,
                position=position,
            )
        return 0

    def time_index(self) -> TimeIndex:
        return parse_time_index(self._storage.fetch_index(self.segment, RemoteFile.TIME_INDEX), self.base_offset)

    def aborted(self) -> Sequence[AbortedTransaction]:
        """Return the entries of the transaction index; some may be lost, see `has_whole_transaction_index`."""
        if self.segment.transaction_index_empty:
            return ()
        data = self._storage.fetch_index(self.segment, RemoteFile.TRANSACTION_INDEX)
        try:
            return parse_transaction_index(data, self.base_offset)
        except CorruptIndex as error:
            raise error.at(path=f"{self.segment.name}.txnindex") from None

    @property
    def has_whole_transaction_index(self) -> bool:
        """True if `aborted` is known to return all entries."""
        return self.segment.transaction_index_empty or self._storage.knows_transaction_index(self.segment)

    def last_batch_end(self, start: int, limit: int) -> BatchEnd | None:
        """As in SegmentLookup, but check each batch and the header after them, which verifies the last batch's offsets.

        The bytes are fetched, so reading them needs no further request.
        """
        at = self._fetch_into_buffer(start, limit - start + SCAN_READ)
        return self.check_batches(self._buffer, at, start, limit)

    def _index_floor(self, target: int, column: int) -> tuple[int, int]:
        if self._index is None:
            data = self._storage.fetch_index(self.segment, RemoteFile.OFFSET_INDEX)
            self._index = parse_offset_index(data, self.base_offset)
        entry = self._index.floor_position(target) if column else self._index.floor(self.base_offset + target)
        return entry.offset, entry.position if entry.position < self.size else 0
