"""Segment of a log: its files, cached facts about them, and look-ups (Kafka: `LogSegment`).

Only the active segment has a writer, and only while it is written. Readers use file handles of their own, so reads may
happen on other threads.
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
from kafkalog_broker.storage.partition.segment_lookup import SegmentEnd, SegmentLookup
from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format import layout, names
from kafkalog_spark.format.fsync import fdatasync_descriptor
from kafkalog_spark.format.layout import NO_TIMESTAMP
from kafkalog_spark.format.offset_index import ENTRY_SIZE as OFFSET_ENTRY
from kafkalog_spark.format.offset_index import load_offset_index, search_file
from kafkalog_spark.format.regular_file import descriptor
from kafkalog_spark.format.time_index import ENTRY_SIZE as TIME_ENTRY
from kafkalog_spark.format.time_index import TimeIndex, TimeIndexWriter, TimestampOffset, load_time_index
from kafkalog_spark.format.transaction_index import ENTRY_SIZE as ABORTED_ENTRY
from kafkalog_spark.format.transaction_index import AbortedTransaction, TransactionIndexWriter, load_transaction_index
from kafkalog_spark.log.write.header_reader import header_at, headers_from
from kafkalog_spark.log.write.segment_files import fsync_segment
from kafkalog_spark.log.write.segment_writer import SegmentWriter

_serials = itertools.count()  # identify the segments of a process, as keys of their file handles


@dataclass(slots=True, eq=False)
class LogSegment(SegmentLookup):
    """Segment of a log on disk; open for writing while `writer` is set.

    Attributes:
        end: Readable end; replaced as a whole, so that readers on other threads see both values together.
        created_ms: Time at which this broker created or loaded the segment.
        jitter_ms: Subtracted from segment.ms.
        transient_suffix: `.swap` while the segment's files replace others, otherwise empty.
        is_synced: True if all bytes of all its files are on disk; always False while the segment is written.
        serial: Identifies the segment in this process.
    """

    directory: Path
    base_offset: int
    end: SegmentEnd
    created_ms: int
    jitter_ms: int = 0
    transient_suffix: str = ""
    is_synced: bool = False
    serial: int = field(init=False, default_factory=partial(next, _serials))
    log_path: str = field(init=False)
    index_path: str = field(init=False)
    writer: SegmentWriter | None = field(init=False, default=None)
    transaction_writer: TransactionIndexWriter | None = field(init=False, default=None)
    time_lookup_cache: dict[tuple[int, int, int], Any] = field(init=False, default_factory=dict)
    _max_timestamp: TimestampOffset | None = None
    _transactions: list[AbortedTransaction] | None = None

    def __post_init__(self) -> None:
        self._set_paths()

    def _set_paths(self) -> None:
        self.log_path = self.path(names.LOG_SUFFIX)
        self.index_path = self.path(names.OFFSET_INDEX_SUFFIX)

    @property
    def next_offset(self) -> int:
        return self.end[1]

    def path(self, suffix: str) -> str:
        return os.path.join(self.directory, names.segment_name(self.base_offset) + suffix + self.transient_suffix)

    def handle(self) -> FileHandle:
        """Return the handle of the .log. Raises OSError; FileNotFoundError if retention has removed the file."""
        return self._open(names.LOG_SUFFIX, self.log_path)

    def _open(self, suffix: str, path: str) -> FileHandle:
        try:
            return _HANDLES.get((self.serial, suffix), path)
        except FileNotFoundError:
            if not path.endswith(names.SWAP_SUFFIX):
                raise
            # Another thread has dropped the suffix since the path was read.
            return _HANDLES.get((self.serial, suffix), path.removesuffix(names.SWAP_SUFFIX))

    def drop_transient_suffix(self) -> None:
        """Note that the files now have their plain names."""
        self.transient_suffix = ""
        self._set_paths()

    def open_writer(self, index_interval_bytes: int, max_index_size: int, *, is_new: bool) -> None:
        """Open the segment for appends.

        Args:
            is_new: Create the files. Otherwise they must have been closed cleanly.

        Raises:
            OSError, CorruptBatch: If the files cannot be opened or changed since they were loaded; no new file is left.
        """
        make = SegmentWriter.create if is_new else SegmentWriter.open_existing
        writer = make(
            self.directory, self.base_offset, index_interval_bytes=index_interval_bytes, max_index_size=max_index_size
        )
        if writer.size != self.size or writer.next_offset > self.next_offset:
            actual = f"{writer.size} bytes up to offset {writer.next_offset - 1}"
            writer.abandon()
            raise CorruptBatch(
                f"the segment has {actual}, expected {self.size} bytes up to offset {self.next_offset - 1} as loaded",
                path=self.log_path,
                hint="something else writes into the log directory",
            )
        self.writer = writer
        self.is_synced = False

    def add_aborted(self, transaction: AbortedTransaction) -> None:
        """Append an entry to the transaction index. Raises OSError."""
        if self.transaction_writer is None:
            self.transaction_writer = TransactionIndexWriter(
                self.path(names.TRANSACTION_INDEX_SUFFIX), self.base_offset
            )
        self.transaction_writer.append(transaction)

    def aborted(self) -> Sequence[AbortedTransaction]:
        """Return the entries of the transaction index. Raises CorruptIndex, OSError."""
        if self.transaction_writer is not None:
            return self.transaction_writer.transactions
        if self._transactions is None:
            self._transactions = load_transaction_index(self.path(names.TRANSACTION_INDEX_SUFFIX), self.base_offset)
        return self._transactions

    def flush(self) -> None:
        """Fsync .log, .index, .timeindex and .txnindex, and close the writer (Kafka: `LogSegment.flush`).

        Only for a segment that receives no more appends. Raises OSError.
        """
        if self.writer is not None:
            self.writer.on_become_inactive()
        fsync_segment(self.directory, self.base_offset, self.transient_suffix)
        self.close_writer()
        self.is_synced = True

    def sync_data(self) -> None:
        """Put the bytes of the .log on disk. Raises OSError.

        `flush` syncs the indexes. Until then a start after a crash rebuilds those of the last segment.
        """
        if self.writer is not None:
            self.writer.sync_data()
        else:
            fdatasync_descriptor(self.handle().fd)

    def close_writer(self) -> None:
        """Close cleanly, with complete indexes cut to their entries. Idempotent. Raises OSError."""
        self._close_transactions()
        if self.writer is not None:
            self._max_timestamp = TimestampOffset(self.writer.max_timestamp, self.writer.offset_of_max_timestamp)
            self.writer.close()
            self.writer = None

    def abandon(self) -> None:
        """Close all files as they are."""
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
        """Add `.deleted` to the names of all files, and return the new paths. Raises OSError."""
        self.forget_handles()
        renamed = []
        for suffix in names.SEGMENT_SUFFIXES:
            path = self.path(suffix)
            deleted = path.removesuffix(self.transient_suffix) + names.DELETED_SUFFIX
            try:
                os.rename(path, deleted)
            except FileNotFoundError:
                continue
            renamed.append(Path(deleted))
        return renamed

    @property
    def max_timestamp(self) -> TimestampOffset:
        """Largest timestamp, and the last offset of its batch; -1 without timestamps (`maxTimestampAndOffsetSoFar`).

        Without a writer it is the last entry of the time index.
        """
        if self.writer is not None:
            return TimestampOffset(self.writer.max_timestamp, self.writer.offset_of_max_timestamp)
        if self._max_timestamp is None:
            self._max_timestamp = self.time_index().last or TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return self._max_timestamp

    @property
    def largest_timestamp(self) -> int:
        """Timestamp for retention, in ms: the largest one, or the modification time of the .log without timestamps."""
        timestamp = self.max_timestamp.timestamp
        return timestamp if timestamp >= 0 else self.modified_ms

    @property
    def modified_ms(self) -> int:
        """Modification time of the .log in ms. Raises OSError."""
        return os.stat(self.log_path).st_mtime_ns // 1_000_000

    def time_index(self) -> TimeIndex:
        return load_time_index(self.path(names.TIME_INDEX_SUFFIX), self.base_offset)

    @property
    def first_timestamp(self) -> int:
        """Largest timestamp of the first batch, in ms or -1. Raises CorruptBatch, UnsupportedFormat, OSError."""
        return header_at(self.handle().fd, 0, self.size).max_timestamp if self.size else layout.NO_TIMESTAMP

    def _index_floor(self, target: int, column: int) -> tuple[int, int]:
        try:
            handle = self._open(names.OFFSET_INDEX_SUFFIX, self.index_path)
        except FileNotFoundError:
            return self.base_offset, 0
        writer = self.writer
        entries = os.fstat(handle.fd).st_size // OFFSET_ENTRY if writer is None else writer.offset_index.entries
        relative, position = search_file(handle.fd, entries, target, column)
        return self.base_offset + relative, position if position < self.size else 0


def segments_from(segments: Sequence[LogSegment], offset: int) -> Sequence[LogSegment]:
    """Return the segments from the one that contains `offset` on; all of them if `offset` precedes the first."""
    return segments[max(bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1, 0) :]


def cut_segment(segment: LogSegment, position: int, offset: int) -> None:
    """Cut a segment without a writer, and its indexes, at byte `position`.

    Its time index ends with the largest remaining timestamp, as after a clean close. Kafka leaves the last sparse
    entry, so that a timestamp look-up may skip the segment. A crash half-way is repaired by recovery, because the
    segment is the last one of its log.

    Args:
        position: Where the first batch that ends at or after `offset` begins.

    Raises:
        OSError, CorruptLog: If a file cannot be read or cut.
    """
    base = segment.base_offset
    index = load_offset_index(segment.path(names.OFFSET_INDEX_SUFFIX), base)
    entries = int(np.searchsorted(index.offsets, offset))
    times = segment.time_index()
    time_entries = int(np.searchsorted(times.offsets, offset))
    aborted = load_transaction_index(segment.path(names.TRANSACTION_INDEX_SUFFIX), base)
    kept = sum(transaction.last_offset < offset for transaction in aborted)
    with descriptor(segment.log_path, os.O_RDWR) as fd:
        # The time index need not contain the timestamps after the last entry of the offset index.
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
