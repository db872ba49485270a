"""Search for aborted transactions by the markers in remote segments whose transaction index may lack entries."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kafkalog_broker.storage.partition.segment_lookup import SegmentLookup
from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import BatchHeader, check_crc, parse_header
from kafkalog_spark.format.control_record import control_type
from kafkalog_spark.format.transaction_index import AbortedTransaction
from kafkalog_spark.log.read.last_stable_offset import TransactionState

_MAX_SEGMENTS = 64  # number of most recently used segments whose markers are cached
_MAX_MARKERS = 10_000  # largest number of markers cached per segment
_HEADER_READ = 128  # bytes read per batch; a whole marker has 78


class TransactionMarkers:
    """Searches for the ends of transactions. Thread-safe; blocks while segments are read.

    Transactions usually end soon after their records, so the search reads from the consumer's batches to the last of
    the markers that end their transactions. Markers on the way are cached for the next read.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cached: OrderedDict[str, _SegmentMarkers] = OrderedDict()  # by log_path, which contains the segment's ID

    def aborted(
        self, file: SegmentLookup, position: int, size: int, following: Iterable[SegmentLookup]
    ) -> list[AbortedTransaction]:
        """Return the aborted transactions of the batches in bytes [position, position + size) of a segment.

        Args:
            following: The segments after it, which are read as far as transactions of these batches are open.

        Raises:
            CorruptBatch: If a segment is damaged.
            RemoteStorageError: If a segment cannot be read.
        """
        state = TransactionState()
        for batch in _transactional_batches(file, position, position + size):
            batch.apply_to(state)
        if state.open:
            self._markers_of(file).end_transactions(file, position + size, file.base_offset, state)
        reached = file.end.next_offset
        for later in following:
            if not state.open:
                break
            self._markers_of(later).end_transactions(later, 0, reached, state)
            reached = later.end.next_offset
        return state.aborted

    def _markers_of(self, file: SegmentLookup) -> _SegmentMarkers:
        with self._lock:
            markers = self._cached.setdefault(file.log_path, _SegmentMarkers())
            self._cached.move_to_end(file.log_path)
            if len(self._cached) > _MAX_SEGMENTS:
                self._cached.popitem(last=False)
            return markers


class _Batch(NamedTuple):
    """Transactional batch. `marker` is the control type of a marker, None for records."""

    header: BatchHeader
    marker: int | None

    def apply_to(self, state: TransactionState) -> None:
        if self.marker is None:
            state.add_data_batch(self.header)
        else:
            state.add_marker(self.header, self.marker)


class _SegmentMarkers:
    """Markers of the batches between two positions of a segment, which are cached. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begin = self._end = 0
        self._markers: deque[_Batch] = deque()

    def end_transactions(self, file: SegmentLookup, position: int, lowest: int, state: TransactionState) -> None:
        """End the open transactions of `state` by the markers at or after byte `position` and offset `lowest`."""
        with self._lock:
            if not self._begin <= position <= self._end:
                self._begin = self._end = position
                self._markers.clear()
            for marker in self._read_markers(file, position):
                header = marker.header
                if header.producer_id in state.open and header.base_offset >= lowest:
                    marker.apply_to(state)
                    if not state.open:
                        return

    def _read_markers(self, file: SegmentLookup, position: int) -> Iterator[_Batch]:
        """Yield the markers at or after `position`, first the cached ones; cache the others."""
        for marker in tuple(self._markers):
            if marker.header.position >= position:
                yield marker
        for batch in _transactional_batches(file, self._end, file.size):
            self._end = batch.header.end
            if batch.marker is None:
                continue
            self._markers.append(batch)
            if len(self._markers) > _MAX_MARKERS:
                self._begin = self._markers.popleft().header.end
            yield batch
        self._end = file.size


def _transactional_batches(file: SegmentLookup, position: int, until: int) -> Iterator[_Batch]:
    """Yield the transactional batches in bytes [position, until). Raises CorruptBatch.

    The CRC is checked for markers, and for batches so small that they could be a marker with damaged attributes.
    """
    handle = file.handle()
    for bounds in file.bounds_from(position, until):
        data = handle.read(bounds.position, min(bounds.size, _HEADER_READ))
        if bounds.size > _HEADER_READ and not data[layout.ATTRIBUTES_AT + 1] & layout.ATTRIBUTE_TRANSACTIONAL:
            continue
        try:
            header = parse_header(data, 0, bounds.position)
            if header.is_control or header.size <= _HEADER_READ:
                check_crc(header, data if header.size == len(data) else handle.read(header.position, header.size))
            marker = control_type(data) if header.is_control and header.record_count > 0 else None
        except CorruptBatch as error:
            raise error.at(path=file.log_path) from None
        if header.is_transactional and (marker is not None or not header.is_control):
            yield _Batch(header, marker)
