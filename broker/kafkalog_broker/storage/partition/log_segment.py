"""Segment of a log as the broker holds it: its files, cached facts of them, and positions of offsets.

Only the active segment has a writer, and only while it is being written. Reading goes through handles of its own, so
that it may happen in another thread than writing.
"""

from __future__ import annotations

import errno
import itertools
import os
import struct
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format import layout, names
from kafkalog_spark.format.atomic_file import descriptor, fdatasync_descriptor, open_regular
from kafkalog_spark.format.layout import NO_TIMESTAMP
from kafkalog_spark.format.offset_index import ENTRY_SIZE as OFFSET_ENTRY
from kafkalog_spark.format.offset_index import load_offset_index, search_file
from kafkalog_spark.format.time_index import ENTRY_SIZE as TIME_ENTRY
from kafkalog_spark.format.time_index import TimeIndex, TimeIndexWriter, load_time_index
from kafkalog_spark.format.transaction_index import ENTRY_SIZE as ABORTED_ENTRY
from kafkalog_spark.format.transaction_index import AbortedTransaction, TransactionIndexWriter, load_transaction_index
from kafkalog_spark.log.write.segment_files import fsync_segment
from kafkalog_spark.log.write.segment_recovery import header_at, headers_from
from kafkalog_spark.log.write.segment_writer import SegmentWriter

# Files open for reading, a bounded number of them.
#
# A handle is closed when nobody refers to it any more: a thread that reads from it keeps it open, whatever is
# evicted or removed meanwhile, and no descriptor number is used again under a reader's hands.

MAX_OPEN = 512
"""Descriptors; leaves room for connections and written segments below the usual 1,024. Opening again takes 5 us."""
MANY_OPEN = 2 * MAX_OPEN
"""Descriptors, MAX_OPEN of them held by responses that consumers have not taken yet; later ones then hold none."""


def is_passing(error: BaseException) -> bool:
    """True when only too many files are open at the moment: what was to be opened is good; ask again."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


class FileHandle:
    __slots__ = ("fd",)
    open_now = 0  # how many there are in this process
    _counting = threading.RLock()  # __del__ may come at any time, also while this thread is counting

    def __init__(self, path: str) -> None:
        self.fd = -1
        self.fd = open_regular(path)
        with FileHandle._counting:
            FileHandle.open_now += 1

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            with FileHandle._counting:
                FileHandle.open_now -= 1

    def read(self, position: int, size: int) -> bytes:
        """The bytes [position, position + size), fewer only at the end of the file."""
        data = os.pread(self.fd, size, position)
        while len(data) < size:
            more = os.pread(self.fd, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data


@dataclass(slots=True, eq=False)
class FileSlice:
    """Unchanging bytes [position, position + size) of a file, read when needed and held open even when removed."""

    handle: FileHandle
    position: int
    size: int

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        return self.handle.read(self.position, self.size)

    def read_into(self, buffer: memoryview, at: int) -> int:
        """Fill `buffer` from byte `at` of the slice; how many came, 0 only at the file's end. Raises OSError."""
        left = self.size - at
        return os.preadv(self.handle.fd, [buffer[:left] if left < len(buffer) else buffer], self.position + at)


class FileHandles:
    """At most `max_open` handles, the longest open ones dropped first. Thread-safe."""

    def __init__(self) -> None:
        self.max_open = MAX_OPEN
        self._lock = threading.Lock()
        self._open: OrderedDict[Hashable, FileHandle] = OrderedDict()

    def get(self, key: Hashable, path: str) -> FileHandle:
        """The handle of `key`: one file for ever, which a path is not once topics are made again. Raises OSError."""
        handle = self._open.get(key)
        if handle is not None:
            return handle
        handle = FileHandle(path)
        with self._lock:
            self._open[key] = handle
            while len(self._open) > self.max_open:
                self._open.popitem(last=False)
        return handle

    def forget(self, key: Hashable) -> None:
        with self._lock:
            self._open.pop(key, None)


_HANDLES = FileHandles()  # one bound for all logs of a process; its name has it go before `os` does, when Python ends
_BOUNDS = struct.Struct(">qi4xb6xi")  # base offset, length, magic, last offset delta
SCAN_READ = 8192
"""Bytes read at once in the search for a batch: index.interval.bytes, and a batch of a usual size after it."""

_serials = itertools.count()  # tell the segments of a process apart, for their file handles


class BatchBounds(NamedTuple):
    """Where a batch lies. base_offset of a message in format v0 or v1: the lowest it can be."""

    position: int
    size: int
    base_offset: int
    last_offset: int

    @property
    def end(self) -> int:
        return self.position + self.size


class ReadAt(Protocol):
    def read(self, position: int, size: int) -> bytes:
        """As FileHandle.read."""


class TimedSegment:
    """Positions of offsets in a segment's .log, local or remote, by its offset index and the headers of batches.

    The offset index is a hint: an entry is used only if its offset lies in the batch at its position. Otherwise the
    search begins where it would without an index.

    Attributes:
        end: (bytes of whole batches, the offset after them).
    """

    __slots__ = ()
    base_offset: int
    end: tuple[int, int]
    log_path: str
    found_by_time: dict[tuple[int, int, int], Any]

    @property
    def size(self) -> int:
        return self.end[0]

    def handle(self) -> ReadAt:
        """The .log. Raises OSError."""
        raise NotImplementedError

    def time_index(self) -> TimeIndex:
        raise NotImplementedError

    def _index_floor(self, target: int, field: int) -> tuple[int, int]:
        """(offset, position) of the last entry of the offset index whose relative offset (field 0) or position (field
        1) is not above `target`; (base offset, 0) if there is none."""
        raise NotImplementedError

    def position_of(self, offset: int) -> int:
        """Where the last batch with an index entry at or before `offset` begins; 0 if there is none, or if the entry is
        wrong."""
        try:
            first = next(self._bounds_by_index(offset - self.base_offset, 0), None)
        except CorruptBatch:
            return 0
        return 0 if first is None else first.position

    def locate(self, offset: int) -> BatchBounds | None:
        """The first batch that ends at or past `offset`: the one that holds it, or the next one; None behind all.

        Raises CorruptBatch.
        """
        for bounds in self._bounds_by_index(offset - self.base_offset, 0):
            if bounds.last_offset >= offset:
                return bounds
        return None

    def boundary(self, start: int, limit: int) -> tuple[int, int]:
        """(position, offset) at the end of the last batch of those from `start`, where a batch begins, that ends at or
        before `limit`; (start, -1) when not even the first one ends there."""
        position, offset = start, -1
        for bounds in self._bounds_by_index(limit - 1, 1, start, limit):
            if bounds.end > limit:
                if bounds.position > start and offset < 0:
                    return bounds.position, bounds.base_offset
                break
            position, offset = bounds.end, bounds.last_offset + 1
        return position, offset

    def _bounds_by_index(
        self, target: int, field: int, start: int = 0, limit: int | None = None
    ) -> Iterator[BatchBounds]:
        """As `bounds_from`, from the batch of the index entry for `target`, see _index_floor; from `start` if no entry
        after that is right."""
        offset, position = self._index_floor(target, field)
        if position > start:
            bounds = self.bounds_from(position, limit)
            try:
                first = next(bounds, None)
            except CorruptBatch:
                first = None
            # `boundary` needs the base offset, which a message in format v0 or v1 does not tell
            lowest = self.base_offset if field == 0 else self.base_offset + 1
            if first is not None and lowest <= first.base_offset <= offset <= first.last_offset:
                yield first
                yield from bounds
                return
        yield from self.bounds_from(start, limit)

    def bounds_from(self, position: int, limit: int | None = None) -> Iterator[BatchBounds]:
        """The batches from `position` on, up to the first that begins at or past `limit`.

        Raises CorruptBatch, also for offsets that do not rise from batch to batch or lie outside the segment.
        """
        handle = self.handle()
        size, next_offset = self.end
        end = size if limit is None else min(limit, size)
        data, start = b"", position
        lowest = self.base_offset
        while position < end:
            at = position - start
            if at + _BOUNDS.size > len(data):
                start, at = position, 0
                data = handle.read(position, min(SCAN_READ, size - position))
                if len(data) < _BOUNDS.size:
                    if len(data) < size - position:
                        return
                    data = data.ljust(_BOUNDS.size, b"\0")  # a message in format v0 may be a byte shorter
            base, length, magic, delta = _BOUNDS.unpack_from(data, at)
            whole = length + layout.LOG_OVERHEAD
            last = base + delta if magic == 2 else base
            is_whole = 0 <= magic <= 2 and layout.LEGACY_MIN_SIZE[0] <= whole <= size - position
            if not is_whole or not lowest <= base <= last < next_offset:
                raise self._wrong(position, whole, magic, base, last, lowest)
            yield BatchBounds(position, whole, base if magic == 2 else min(lowest, base), last)
            position += whole
            lowest = last + 1

    def check_batches(self, data: bytes, at: int, position: int, limit: int) -> tuple[int, int]:
        """Look at the headers in data[at:], which are the bytes of the .log from `position` on, where a batch begins.

        A loop of its own beside `bounds_from`, because it sees every batch that is sent to a consumer.

        Returns:
            (position, offset) at the end of the last batch that ends at or before `limit`; (position, -1) without one.

        Raises:
            CorruptBatch: As `bounds_from`, also for the batch after these if its header is in `data`.
        """
        size, next_offset = self.end
        to_position = position - at
        file_end, last_end, last_header = size - to_position, limit - to_position, len(data) - _BOUNDS.size
        smallest, unpack_from = layout.LEGACY_MIN_SIZE[0] - layout.LOG_OVERHEAD, _BOUNDS.unpack_from
        offset, lowest = -1, self.base_offset
        while at <= last_header:
            base, length, magic, delta = unpack_from(data, at)
            last = base + delta if magic == 2 else base
            end = at + length + layout.LOG_OVERHEAD
            is_whole = 0 <= magic <= 2 and length >= smallest and end <= file_end
            if not is_whole or not lowest <= base <= last < next_offset:
                raise self._wrong(at + to_position, end - at, magic, base, last, lowest)
            if end > last_end:
                break
            at = end
            offset = lowest = last + 1
        else:
            if at < file_end <= len(data):
                what = f"{file_end - at} bytes are left, which is no whole batch"
                raise CorruptBatch(what, path=self.log_path, position=at + to_position)
        return at + to_position, offset

    def _wrong(self, position: int, whole: int, magic: int, base: int, last: int, lowest: int) -> CorruptBatch:
        """The error for the header of a batch of `whole` bytes, offsets `base` to `last`, where `lowest` may follow."""
        left = self.end[0] - position
        if not (0 <= magic <= 2 and layout.LEGACY_MIN_SIZE[0] <= whole <= left):
            what = f"{whole - layout.LOG_OVERHEAD} as the length of a batch of magic {magic}, {left} bytes are left"
            return CorruptBatch(what, path=self.log_path, position=position)
        return CorruptBatch(
            f"the batch has offsets {base} to {last}, expected offsets within {lowest} and {self.end[1] - 1}: after "
            "the batch before it, and before the next segment",
            path=self.log_path,
            position=position,
            offset=base,
        )


@dataclass(slots=True, eq=False)
class LogSegment(TimedSegment):
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
    found_by_time: dict[tuple[int, int, int], Any] = field(init=False, default_factory=dict)
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
