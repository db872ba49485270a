"""Segment of a log as the broker holds it: its files, cached facts of them, and positions of offsets.

Only the active segment has a writer, and only while it is being written. Reading goes through handles of its own, so
that it may happen in another thread than writing.
"""

from __future__ import annotations

import itertools
import os
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from kafkalog_broker.storage.partition.file_handles import _HANDLES, FileHandle
from kafkalog_broker.storage.partition.segment_lookup import SegmentLookup
from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format import layout, names
from kafkalog_spark.format.atomic_file import descriptor, fdatasync_descriptor
from kafkalog_spark.format.layout import NO_TIMESTAMP
from kafkalog_spark.format.offset_index import ENTRY_SIZE as OFFSET_ENTRY
from kafkalog_spark.format.offset_index import load_offset_index, search_file
from kafkalog_spark.format.time_index import ENTRY_SIZE as TIME_ENTRY
from kafkalog_spark.format.time_index import TimeIndex, TimeIndexWriter, load_time_index
from kafkalog_spark.format.transaction_index import ENTRY_SIZE as ABORTED_ENTRY
from kafkalog_spark.format.transaction_index import AbortedTransaction, TransactionIndexWriter, load_transaction_index
from kafkalog_spark.log.write.header_reader import header_at, headers_from
from kafkalog_spark.log.write.segment_files import fsync_segment
from kafkalog_spark.log.write.segment_writer import SegmentWriter

_serials = itertools.count()  # tell the segments of a process apart, for their file handles


@dataclass(slots=True, eq=False)
class LogSegment(SegmentLookup):
    """Segment; open for writing while `writer` is set. end: (bytes of whole batches, the offset after them), which
    readers may see: one tuple, as another thread must not see the one without the other. created_ms: when this broker
    made or loaded it. jitter_ms: taken off segment.ms. transient: the suffix of its files, `.swap` while it takes the
    place of others, else empty. is_synced: True if all bytes of all its files are known to be on disk; always False
    while the segment is being written to."""

    directory: Path
    base_offset: int
    end: tuple[int, int]
    created_ms: int
    jitter_ms: int = 0
    transient: str = ""
    is_synced: bool = False
    serial: int = field(init=False, default_factory=partial(next, _serials))
    log_path: str = field(init=False)
    index_path: str = field(init=False)
    writer: SegmentWriter | None = field(init=False, default=None)
    transaction_writer: TransactionIndexWriter | None = field(init=False, default=None)
    time_lookup_cache: dict[tuple[int, int, int], Any] = field(init=False, default_factory=dict)
    _max_timestamp: tuple[int, int] | None = None
    _transactions: list[AbortedTransaction] | None = None

    def __post_init__(self) -> None:
        self.log_path = self.path(names.LOG_SUFFIX)
        self.index_path = self.path(names.OFFSET_INDEX_SUFFIX)

    @property
    def next_offset(self) -> int:
        return self.end[1]

    def path(self, suffix: str) -> str:
        return os.path.join(self.directory, names.segment_name(self.base_offset) + suffix + self.transient)

    def handle(self) -> FileHandle:
        """The .log. Raises OSError; FileNotFoundError when retention has taken it."""
        return self._open(names.LOG_SUFFIX, self.log_path)

    def _open(self, suffix: str, path: str) -> FileHandle:
        try:
            return _HANDLES.get((self.serial, suffix), path)
        except FileNotFoundError:
            if not path.endswith(names.SWAP_SUFFIX):
                raise
            # It has lost the suffix since its name was looked up, perhaps in another thread.
            return _HANDLES.get((self.serial, suffix), path.removesuffix(names.SWAP_SUFFIX))

    def swapped_in(self) -> None:
        self.transient = ""
        self.__post_init__()

    # ---- writing

    def open_writer(self, index_interval_bytes: int, max_index_size: int, *, is_new: bool) -> None:
        """is_new: makes the files, else opens those that were closed cleanly. Raises OSError, CorruptBatch; no new file
        is left then."""
        make = SegmentWriter.create if is_new else SegmentWriter.open_existing
        writer = make(
            self.directory, self.base_offset, index_interval_bytes=index_interval_bytes, max_index_size=max_index_size
        )
        if writer.size != self.size or writer.next_offset > self.next_offset:
            found = f"{writer.size} bytes up to offset {writer.next_offset - 1}"
            writer.abandon()
            raise CorruptBatch(
                f"the segment has {found}, but {self.size} bytes up to {self.next_offset - 1} were loaded",
                path=self.log_path,
                hint="something else writes into the log directory",
            )
        self.writer = writer
        self.is_synced = False

    def add_aborted(self, transaction: AbortedTransaction) -> None:
        if self.transaction_writer is None:
            self.transaction_writer = TransactionIndexWriter(
                self.path(names.TRANSACTION_INDEX_SUFFIX), self.base_offset
            )
        self.transaction_writer.append(transaction)

    def aborted(self) -> Sequence[AbortedTransaction]:
        """The entries of the transaction index. Raises CorruptIndex, OSError."""
        if self.transaction_writer is not None:
            return self.transaction_writer.transactions
        if self._transactions is None:
            self._transactions = load_transaction_index(self.path(names.TRANSACTION_INDEX_SUFFIX), self.base_offset)
        return self._transactions

    def flush(self) -> None:
        """Put the bytes of .log, .index, .timeindex and .txnindex on disk, and close the writer (LogSegment.flush).

        For a segment to which nothing is appended any more. Raises OSError.
        """
        if self.writer is not None:
            self.writer.on_become_inactive()
        fsync_segment(self.directory, self.base_offset, self.transient)
        self.close_writer()
        self.is_synced = True

    def sync_data(self) -> None:
        """Put the bytes of the .log on disk. The indexes, and the .txnindex, are left to `flush`: a start after a crash
        builds those of the last segment again. Raises OSError."""
        if self.writer is not None:
            self.writer.sync_data()
        else:
            fdatasync_descriptor(self.handle().fd)

    def close_writer(self) -> None:
        """Close cleanly, with indexes complete and cut to their entries. Twice is harmless."""
        self._close_transactions()
        if self.writer is not None:
            self._max_timestamp = (self.writer.max_timestamp, self.writer.offset_of_max_timestamp)
            self.writer.close()
            self.writer = None

    def abandon(self) -> None:
        self._close_transactions()
        if self.writer is not None:
            self.writer.abandon()
            self.writer = None
        self.forget_handles()

    def _close_transactions(self) -> None:
        if self.transaction_writer is not None:
            self._transactions = list(self.transaction_writer.transactions)
            self.transaction_writer.close()
            self.transaction_writer = None

    def forget_handles(self) -> None:
        for suffix in (names.LOG_SUFFIX, names.OFFSET_INDEX_SUFFIX):
            _HANDLES.forget((self.serial, suffix))

    def rename_for_deletion(self) -> list[Path]:
        """Returns the files' new names. Raises OSError."""
        self.forget_handles()
        renamed = []
        for suffix in names.SEGMENT_SUFFIXES:
            path = self.path(suffix)
            deleted = path.removesuffix(self.transient) + names.DELETED_SUFFIX
            try:
                os.rename(path, deleted)
            except FileNotFoundError:
                continue
            renamed.append(Path(deleted))
        return renamed

    # ---- timestamps

    @property
    def max_timestamp(self) -> tuple[int, int]:
        """(largest timestamp in ms, last offset of its batch); -1 without timestamps. While nobody writes, by the time
        index."""
        if self.writer is not None:
            return self.writer.max_timestamp, self.writer.offset_of_max_timestamp
        if self._max_timestamp is None:
            last = self.time_index().last
            self._max_timestamp = (NO_TIMESTAMP, self.base_offset) if last is None else (last.timestamp, last.offset)
        return self._max_timestamp

    @property
    def largest_timestamp(self) -> int:
        """ms; of a segment without timestamps the time of modification of its .log. What retention goes by."""
        timestamp = self.max_timestamp[0]
        return timestamp if timestamp >= 0 else self.modified_ms

    @property
    def modified_ms(self) -> int:
        """Time of modification of the .log in ms. Raises OSError."""
        return os.stat(self.log_path).st_mtime_ns // 1_000_000

    def time_index(self) -> TimeIndex:
        return load_time_index(self.path(names.TIME_INDEX_SUFFIX), self.base_offset)

    @property
    def first_timestamp(self) -> int:
        """The first batch's largest timestamp, ms or -1. Raises CorruptBatch, UnsupportedFormat, OSError."""
        return header_at(self.handle().fd, 0, self.size).max_timestamp if self.size else layout.NO_TIMESTAMP

    def _index_floor(self, target: int, field: int) -> tuple[int, int]:
        try:
            handle = self._open(names.OFFSET_INDEX_SUFFIX, self.index_path)
        except FileNotFoundError:
            return self.base_offset, 0
        writer = self.writer
        entries = os.fstat(handle.fd).st_size // OFFSET_ENTRY if writer is None else writer.offset_index.entries
        relative, position = search_file(handle.fd, entries, target, field)
        return self.base_offset + relative, position if position < self.size else 0


def segments_from(segments: Sequence[LogSegment], offset: int) -> Sequence[LogSegment]:
    """From the one that holds `offset` on; all where it lies below the first."""
    return segments[max(bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1, 0) :]


def cut_segment(segment: LogSegment, position: int, offset: int) -> None:
    """Cut the .log of a segment without a writer at byte `position`, where the first batch that ends at or after
    `offset` begins, and its indexes with it. The time index ends with the largest timestamp that is left, as after a
    clean close; Kafka leaves it at its last sparse entry, with which a search by time may pass the segment over. After
    a crash on the way the segment is recovered: it is the last one. Raises OSError, CorruptLog."""
    base = segment.base_offset
    index = load_offset_index(segment.path(names.OFFSET_INDEX_SUFFIX), base)
    entries = int(np.searchsorted(index.offsets, offset))
    times = segment.time_index()
    time_entries = int(np.searchsorted(times.offsets, offset))
    aborted = load_transaction_index(segment.path(names.TRANSACTION_INDEX_SUFFIX), base)
    kept = sum(transaction.last_offset < offset for transaction in aborted)
    with descriptor(segment.log_path, os.O_RDWR) as fd:
        # What comes after the last entry of the offset index may have a timestamp that the time index does not tell.
        start = int(index.positions[entries - 1]) if entries else 0
        latest = (NO_TIMESTAMP, base)
        for header in headers_from(fd, start, position):
            if header.max_timestamp > latest[0]:
                latest = (header.max_timestamp, header.last_offset)
        os.ftruncate(fd, position)
    os.truncate(segment.path(names.OFFSET_INDEX_SUFFIX), entries * OFFSET_ENTRY)
    time_path = segment.path(names.TIME_INDEX_SUFFIX)
    os.truncate(time_path, time_entries * TIME_ENTRY)
    with TimeIndexWriter.open_existing(time_path, base) as writer:
        writer.maybe_append(*latest, skip_full_check=True)
        writer.trim()
    if kept:
        os.truncate(segment.path(names.TRANSACTION_INDEX_SUFFIX), kept * ABORTED_ENTRY)
    elif aborted:
        os.unlink(segment.path(names.TRANSACTION_INDEX_SUFFIX))
