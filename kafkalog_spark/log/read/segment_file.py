"""A segment's files, open for reading: bytes, batch headers, and index look-ups of offsets.

Headers of all batches come as tables (layout.HeaderColumn), a window of bytes at a time, every CRC checked. A large
file is swept by a kernel at the speed of the disk, a small one read in plain Python, which never loads Numba.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from copy import copy
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import numpy.typing as npt

from kafkalog_spark.errors import CorruptBatch, CorruptLog, KafkalogError, NotALogDirectory, UnsupportedFormat
from kafkalog_spark.format import batch_header, layout, offset_index, time_index, transaction_index
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.crc32c import crc32c
from kafkalog_spark.format.index_file import entries_of, most_index_bytes
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.format.names import SegmentFiles
from kafkalog_spark.format.offset_index import OffsetIndex, OffsetPosition, parse_offset_index
from kafkalog_spark.format.time_index import TimeIndex, parse_time_index
from kafkalog_spark.format.transaction_index import AbortedTransaction
from kafkalog_spark.store.interface import FileFacts, OpenFile, RangeReader, Store

if TYPE_CHECKING:
    from kafkalog_spark.log.codecs.scratch import Scratch

Table = npt.NDArray[np.int64]

_WINDOW = 8 << 20
"""Bytes read at once: large enough that one kernel call and one table cost nothing next to them."""
_PLAIN_BELOW = 1 << 20  # bytes up to which plain Python is quicker than loading Numba (0.3 s)
_TABLE_ROWS = 32 << 10


@dataclass(frozen=True, slots=True)
class Window:
    """Batches that were found good. table: int64[n, len(HeaderColumn)], POSITION in the file; `batch(row)` gives one's
    bytes."""

    table: Table
    data: memoryview  # from position `start` of the file on
    start: int

    def batch(self, row: int) -> memoryview:
        position = int(self.table[row, HeaderColumn.POSITION]) - self.start
        return self.data[position : position + int(self.table[row, HeaderColumn.SIZE])]

    @property
    def size(self) -> int:
        """Bytes of its batches."""
        return int(self.table[:, HeaderColumn.SIZE].sum())

    @property
    def starts(self) -> Table:
        """int64[n], where in `data` each batch begins."""
        starts: Table = self.table[:, HeaderColumn.POSITION] - self.start
        return starts

    def records(self, first: int, end: int) -> tuple[Table, Table]:
        """(starts, ends) in `data` of the records of v2 batches: rows [first, end)."""
        starts = self.starts[first:end]
        return starts + layout.RECORDS_AT, starts + self.table[first:end, HeaderColumn.SIZE]

    @property
    def payload(self) -> npt.NDArray[np.uint8]:
        """`data` as the kernels take it."""
        return np.frombuffer(self.data.toreadonly(), np.uint8)

    def first(self, rows: int) -> Window:
        return Window(self.table[:rows], self.data, self.start)

    def header(self, row: int) -> BatchHeader:
        return BatchHeader(*self.table[row, : len(BatchHeader._fields)].tolist())


def header_windows(
    file: RangeReader, end: int, start: int = 0, buffer: Scratch | None = None
) -> Iterator[tuple[Window, KafkalogError | None]]:
    """The batches between the positions `start` and `end` of an open file, as windows of good ones.

    The last window comes with what is wrong after it, as a value with its position, where the batches end before
    `end`. Offsets are not looked at. A window's bytes are gone when the next one comes. buffer: where a swept window
    lies; it grows for a batch that is larger, and shrinks afterwards. By default a window of its own is read, and of a
    larger batch only the header; or all of a small file at once. Raises OSError.
    """
    if buffer is None and end - start < _PLAIN_BELOW:
        return _plain_windows(file, start, end)
    return _swept_windows(file, start, end, buffer)


def _plain_windows(file: RangeReader, start: int, end: int) -> Iterator[tuple[Window, KafkalogError | None]]:
    """All of it as one window: it is small."""
    data = memoryview(file.read(start, end - start))
    rows, position = [], 0
    wrong: KafkalogError | None = None
    try:
        while position < len(data):
            batch_header.whole_batch(data, position, len(data) - position, start + position)
            header = batch_header.parse_header(data, position, start + position)
            batch_header.check_crc(header, data[position : position + header.size])
            rows.append((*header, 1, 0))
            position += header.size
    except (CorruptBatch, UnsupportedFormat) as error:
        wrong = error
    table = np.array(rows, np.int64).reshape(-1, len(HeaderColumn))
    yield Window(table, data, start), wrong


def _swept_windows(
    file: RangeReader, start: int, end: int, buffer: Scratch | None = None
) -> Iterator[tuple[Window, KafkalogError | None]]:
    from kafkalog_spark.kernels.primitives import CRC32_TABLE, CRC32C_TABLE
    from kafkalog_spark.kernels.sweep import SweepStatus, sweep
    from kafkalog_spark.log.codecs.scratch import Scratch  # with the codecs

    wants_bytes = buffer is not None
    buffer = buffer or Scratch(min(_WINDOW, max(end - start, 1)))
    size = buffer.data.size
    table = np.empty((_TABLE_ROWS, len(HeaderColumn)), np.int64)
    position, large = start, 0
    wrong: KafkalogError | None
    try:
        while position < end:
            want, large = min(max(size, large), end - position), 0
            filled = file.read_into(position, buffer.room(0, want))
            if filled < want:  # the file became shorter
                end = position + filled
            frozen, view = buffer.read_only(), buffer.view
            at = 0
            while True:
                rows, swept_to, status = sweep(frozen, at, filled, table, CRC32C_TABLE, CRC32_TABLE)
                found = table[:rows]
                good, wrong = check_large(found, view, position)
                found = found[:good].copy()
                found[:, HeaderColumn.POSITION] += position
                at = int(swept_to)
                if wrong is None and status not in (SweepStatus.OUT_OF_BYTES, SweepStatus.TABLE_FULL):
                    wrong = what_is_wrong(view, at, filled, position + at)
                if len(found) or wrong is not None:
                    yield Window(found, view[:filled], position), wrong
                if wrong is not None:
                    return
                if status != SweepStatus.TABLE_FULL:
                    break
            position += at
            if position < end and (at == 0 or position + (filled - at) >= end):
                # What is left begins no batch that is whole in the buffer: a large one, or the end of the file.
                try:
                    header = batch_header.announced_batch(
                        file.read, position, end, batch_header.BELIEVED if wants_bytes else 0
                    )
                except (CorruptBatch, UnsupportedFormat) as error:
                    yield Window(table[:0], view[:0], position), error
                    return
                if wants_bytes:
                    large = header.size
                else:
                    head = memoryview(file.read(position, layout.RECORDS_AT))
                    yield Window(np.array([(*header, 1, 0)], np.int64), head, position), None
                    position = header.end
    finally:
        buffer.shrink(size)


def check_large(table: Table, data: memoryview, start: int) -> tuple[int, CorruptBatch | None]:
    """How many batches have a valid CRC: those that the sweep left to its caller are checked here."""
    unseen = np.flatnonzero(table[:, HeaderColumn.CRC_SEEN] == 0)
    wanted = table[unseen][:, [HeaderColumn.POSITION, HeaderColumn.SIZE, HeaderColumn.MAGIC, HeaderColumn.CRC]]
    for row, (at, size, magic, crc) in zip(unseen.tolist(), wanted.tolist(), strict=True):
        if magic == 2:
            found = crc32c(data[at + layout.ATTRIBUTES_AT : at + size])
        else:
            found = batch_header.computed_crc(data[at : at + size], magic)
        if found != crc:
            offset = int(table[row, HeaderColumn.BASE_OFFSET])
            return row, CorruptBatch(batch_header.crc_text(magic, crc, found), position=start + at, offset=offset)
    return len(table), None


def what_is_wrong(data: memoryview, at: int, filled: int, position: int) -> KafkalogError:
    """The error for the batch where the sweep stopped for more than the end of its bytes."""
    try:
        size, magic = batch_header.whole_batch(data, at, filled - at, position)
        batch_header.check_crc(batch_header.parse_header(data, at, position), data[at : at + size])
    except (CorruptBatch, UnsupportedFormat) as error:
        return error
    return CorruptBatch(f"no batch of magic {magic}", position=position)


NO_FACTS: Mapping[str, FileFacts] = MappingProxyType({})

_JUMP_READ = 128  # bytes read at a header when batches are large: a header with the record of a control batch
_RUN_READ = 64 << 10  # bytes read at once when batches are small
_LARGE_BATCH = 4 << 10
"""From this batch size on, jumping from header to header touches less than reading through."""


@dataclass(eq=False)
class SegmentFile:
    """A segment's .log, open, with its indexes; the file is as large as it was when it was opened.

    files: names in `directory`. _read_index: called with an index file's name and the size of an entry: its bytes, see
    entries_of; raises OSError. next_base_offset: where the next segment begins, None for the last one. remote: each
    read may be a request. pass_over_damage: whoever walks its headers goes on after damage instead of raising. begin,
    size: the bytes [begin, size) are read, all of the file unless it is a `part`; first_offset: the lowest that may lie
    in them. excess: bytes of the file beyond those that a segment may have, which nothing reads. Every read of an
    object that has gone or was replaced since it was listed raises FileNotFoundError.
    """

    _file: OpenFile
    directory: str
    files: SegmentFiles
    _read_index: Callable[[str, int], bytes]
    next_base_offset: int | None = None
    topic_partition: str | None = None
    _: KW_ONLY
    remote: bool = False
    pass_over_damage: bool = False

    def __post_init__(self) -> None:
        self.base_offset = self.first_offset = self.files.base_offset
        self.path = os.path.join(self.directory, self.files.log)
        self.bytes_read = self.begin = 0
        self.size = min(self._file.size, layout.MAX_SEGMENT_SIZE)
        self.excess = self._file.size - self.size
        self.is_whole = True

    @classmethod
    def open(
        cls,
        store: Store,
        directory: str,
        files: SegmentFiles,
        next_base_offset: int | None = None,
        topic_partition: str | None = None,
        *,
        facts: Mapping[str, FileFacts] = NO_FACTS,
        pass_over_damage: bool = False,
    ) -> SegmentFile:
        """Open a segment where it lies. facts: what the listing said, by name. Raises FileNotFoundError when the .log
        has been renamed or removed, OSError when it cannot be opened or is no regular file; CorruptLog when it has more
        bytes than a segment may have, and damage is not passed over."""
        path = os.path.join(directory, files.log)
        file = store.open(path, facts.get(files.log))
        if file.size > layout.MAX_SEGMENT_SIZE and not pass_over_damage:
            file.close()
            raise CorruptLog(
                too_large(file.size),
                topic_partition=topic_partition,
                path=path,
                position=layout.MAX_SEGMENT_SIZE,
                hint="no broker wrote it; mode=DROPMALFORMED and kafkalog-repair read what a segment may have",
            )

        def read_index(name: str, entry_size: int) -> bytes:
            with closing(store.open(os.path.join(directory, name), facts.get(name))) as index:
                return entries_of(index.read, entry_size, most_index_bytes(file.size, entry_size))

        return cls(
            file, directory, files, read_index, next_base_offset, topic_partition, remote=store.remote,
            pass_over_damage=pass_over_damage,
        )  # fmt: skip

    def close(self) -> None:
        self._file.close()

    def up_to(self, end: int) -> SegmentFile:
        """The same open file as if it ended at byte `end`."""
        return self.part(self.begin, end, self.first_offset)

    def part(self, begin: int, end: int, first_offset: int) -> SegmentFile:
        """The same open file as if it held nothing but the bytes [begin, end), whose first batch may begin with
        first_offset. Positions and indexes stay those of the file. Closing either closes both."""
        part = copy(self)
        part.begin, part.size, part.first_offset = begin, min(end, self.size), first_offset
        part.is_whole, part.excess = False, 0
        return part

    def __enter__(self) -> SegmentFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def has_changed(self) -> bool:
        """True if the .log has been written to, cut, replaced or removed since it was opened."""
        return self._file.has_changed()

    @property
    def is_last(self) -> bool:
        """True if no segment followed when the partition was listed: the one that may end in a torn batch."""
        return self.next_base_offset is None

    def read(self, position: int, size: int) -> bytes:
        """The bytes [position, position + size), fewer only at the end of the file."""
        try:
            data = self._file.read(position, size)
        except OSError as error:
            self._fail(error, position)
        self.bytes_read += len(data)
        return data

    def read_into(self, position: int, target: memoryview) -> int:
        """Fill `target` from `position` on; returns the number of bytes, fewer only at the end of the file."""
        try:
            filled = self._file.read_into(position, target)
        except OSError as error:
            self._fail(error, position)
        self.bytes_read += filled
        return filled

    def expect(self, position: int, end: int) -> None:
        """Batches from `position` on to that of offset `end` will be read: have an object store's fetched ahead."""
        if not self.remote:
            return
        until = self.size
        if self.next_base_offset is None or end < self.next_base_offset:
            # the first entry's batch may begin before `end`, and is read; that of the second does not
            _, positions = self.offset_index.entries_after(end)
            until = min([until, *positions[1:2].tolist()])
        self._file.expect(position, until)

    def _fail(self, error: OSError, position: int) -> NoReturn:
        """A failing disk is neither a torn tail nor a wrong hint: nothing that asks for those catches this."""
        if isinstance(error, FileNotFoundError):
            raise error
        raise NotALogDirectory(
            f"the segment cannot be read: {error.strerror}",
            topic_partition=self.topic_partition,
            path=self.path,
            position=position,
        ) from error

    @cached_property
    def offset_index(self) -> OffsetIndex:
        """Parsed but not checked; empty when there is none or it cannot be read."""
        data = self._index_bytes(self.files.offset_index, offset_index.ENTRY_SIZE)
        return parse_offset_index(data, self.base_offset)

    @cached_property
    def time_index(self) -> TimeIndex:
        return parse_time_index(self._index_bytes(self.files.time_index, time_index.ENTRY_SIZE), self.base_offset)

    def _index_bytes(self, name: str | None, entry_size: int) -> bytes:
        try:
            return self.read_index(name, entry_size)
        except OSError:
            return b""  # an index is a hint: without it the .log is read from its first byte

    def read_index(self, name: str | None, entry_size: int) -> bytes:
        """The bytes of an index file, without most of the zeros that pad it; none without a file. Raises OSError."""
        data = b"" if name is None else self._read_index(name, entry_size)
        self.bytes_read += len(data)
        return data

    def aborted(self) -> list[AbortedTransaction]:
        """The entries of its .txnindex, none without one. Raises CorruptIndex, OSError."""
        data = self.read_index(self.files.transaction_index, transaction_index.ENTRY_SIZE)
        return transaction_index.parse_transaction_index(data, self.base_offset)

    def header_at(self, position: int) -> BatchHeader | None:
        """The header at `position`; None when the batch is not whole in the file. Raises as parse_header."""
        return self._header_in(self.read(position, _JUMP_READ), 0, position)

    def header_or_none(self, position: int) -> BatchHeader | None:
        """As header_at; None too where what lies there cannot be a header."""
        try:
            return self.header_at(position)
        except (CorruptBatch, UnsupportedFormat):
            return None

    def _header_in(self, data: bytes, at: int, position: int) -> BatchHeader | None:
        if len(data) - at < batch_header.PREFIX_SIZE:
            return None
        size, magic = batch_header.parse_prefix(data, at, position)
        if size > self.size - position or len(data) - at < batch_header.HEADER_SIZES[magic]:
            return None
        return batch_header.parse_header(data, at, position)

    def proven_header(self, position: int) -> BatchHeader | None:
        """The header at `position` if a whole batch with a valid CRC lies there, else None."""
        header = self.header_or_none(position) if 0 <= position < self.size else None
        return header if header is not None and batch_header.crc_in_pieces(self.read, header) == header.crc else None

    def check_crc(self, header: BatchHeader) -> None:
        """Read the batch of `header`, and raise CorruptBatch when its CRC is wrong."""
        batch_header.compare_crc(header, batch_header.crc_in_pieces(self.read, header))

    def check_offsets(self, header: BatchHeader, lowest: int) -> None:
        """Raise CorruptBatch unless the offsets, which no CRC covers, lie between `lowest` and the next segment."""
        end = layout.MAX_INT64 if self.next_base_offset is None else self.next_base_offset
        if not max(lowest, self.base_offset) <= header.base_offset <= header.last_offset < end:
            raise CorruptBatch(
                f"offsets {header.base_offset} to {header.last_offset} do not follow {lowest - 1}"
                + (f", or reach into the next segment at {end}" if self.next_base_offset is not None else ""),
                position=header.position,
                offset=header.base_offset,
            )

    def headers(self, position: int = 0) -> Iterator[BatchHeader]:
        """The headers from `position` on, up to the last whole batch. CRCs are not checked. Raises as parse_header."""
        data, start, wish = b"", position, _RUN_READ
        while True:
            at = position - start
            header = self._header_in(data, at, position)
            if header is None:
                start = position
                data = self.read(position, wish)
                header = self._header_in(data, 0, position)
                if header is None:
                    return
            yield header
            wish = _JUMP_READ if header.size >= _LARGE_BATCH else _RUN_READ
            position = header.end

    def good_headers(self, position: int = 0) -> Iterator[BatchHeader]:
        """As headers, each after its batch has been read and its CRC found right. Raises CorruptBatch too."""
        for header in self.headers(position):
            self.check_crc(header)
            yield header

    def proven_entry(self, entry: OffsetPosition) -> BatchHeader | None:
        """The header of the batch that an offset index entry points to, if it is one and its offsets fit the entry:
        they lie above the entry before and not above this one. A valid CRC alone does not do: an entry that is wrong
        may point into a value, which may hold a whole batch. Brokers before 0.11 wrote the first offset inside a
        wrapper into the entry (LogSegment.append), so a wrapper's own offset, which is its last record's, may lie above
        the entry: below the one after it."""
        header = self.proven_header(entry.position)
        if header is None:
            return None
        offsets = self.offset_index.offsets
        slot = int(np.searchsorted(offsets, entry.offset))
        before = int(offsets[slot - 1]) if slot else self.base_offset - 1
        highest = entry.offset
        if header.record_count < 0 and header.magic < 2:
            end = layout.MAX_INT64 if self.next_base_offset is None else self.next_base_offset
            highest = (int(offsets[slot + 1]) if slot + 1 < len(offsets) else end) - 1
        return header if before < header.base_offset <= header.last_offset <= highest else None

    def locate(self, offset: int, hint: tuple[int, int] | None = None) -> int:
        """Position from which every record from `offset` on follows, as far as `proven_entry` believes the index. hint:
        (base offset of a segment, position) where its batch may be."""
        if hint is not None and hint[0] == self.base_offset:
            hinted = self.proven_header(hint[1])
            if hinted is not None and self.base_offset <= hinted.base_offset <= offset:
                return hinted.position
        if offset <= self.first_offset:
            return self.begin
        entry = self.offset_index.floor(offset)
        while entry.position > self.begin:
            header = self.proven_entry(entry)
            if header is None:
                return self.begin
            if header.base_offset <= offset:
                return entry.position
            # a wrapper that may hold the offset, but may begin after it as well: the one before does not
            entry = self.offset_index.floor(entry.offset - 1)
        return self.begin

    def windows(self, position: int = 0) -> Iterator[tuple[Window, KafkalogError | None]]:
        """See header_windows. Raises NotALogDirectory when the file cannot be read."""
        try:
            yield from header_windows(self._file, self.size, position)
        except OSError as error:
            self._fail(error, position)

    def blame(self, error: KafkalogError) -> KafkalogError:
        return error.at(topic_partition=self.topic_partition, path=self.path)


def too_large(size: int) -> str:
    return f"the segment has {size} bytes; Kafka's segments have {layout.MAX_SEGMENT_SIZE} at most (positions are i32)"
