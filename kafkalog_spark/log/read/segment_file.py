"""A segment's files, open for reading: the bytes and batch headers of its .log, and its indexes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from copy import copy
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from types import MappingProxyType
from typing import NoReturn

from kafkalog_spark.errors import CorruptBatch, CorruptLog, KafkalogError, NotALogDirectory, UnsupportedFormat
from kafkalog_spark.format import batch_header, layout, offset_index, time_index, transaction_index
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.index_file import max_index_bytes, read_index_entries
from kafkalog_spark.format.names import SegmentFiles
from kafkalog_spark.format.offset_index import OffsetIndex, parse_offset_index
from kafkalog_spark.format.time_index import TimeIndex, parse_time_index
from kafkalog_spark.format.transaction_index import AbortedTransaction
from kafkalog_spark.log.read.header_windows import CheckedWindow, header_windows
from kafkalog_spark.store.interface import FileFacts, OpenFile, Store

NO_FACTS: Mapping[str, FileFacts] = MappingProxyType({})

_LARGE_BATCH = 4 << 10
"""Size in bytes of a batch, from which on it costs less to read single headers than all bytes."""
_HEADER_READ = 128  # bytes read for a single header: it is enough for a whole control batch
_CHUNK_READ = 64 << 10  # bytes read at once while batches are small


@dataclass(eq=False)
class SegmentFile:
    """An open .log file of a segment, with its indexes. Bytes that are appended after it was opened are not read.

    Reading an object of a bucket that was deleted or replaced since it was listed raises FileNotFoundError.

    Attributes:
        directory: Directory of the segment.
        files: Names of its files in `directory`.
        next_base_offset: Base offset of the next segment, None for the last one.
        topic_partition: Name of the partition, for errors.
        is_remote: True if each read may be a request to an object store.
        pass_over_damage: True if searches in its batches skip damage instead of raising.
        base_offset: Base offset of the segment.
        begin, size: The bytes [begin, size) are read: the whole file, or a `part` of it.
        first_offset: Lowest offset that the first batch of these bytes may have.
        is_whole: False for a `part`.
        excess: Bytes of the file beyond the largest size of a segment. They are never read.
        bytes_read: Bytes read so far, of the .log and of indexes.
    """

    _file: OpenFile
    directory: str
    files: SegmentFiles
    _read_index: Callable[[str, int], bytes]
    next_base_offset: int | None = None
    topic_partition: str | None = None
    _: KW_ONLY
    is_remote: bool = False
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
        """Open a segment in a directory of a store.

        Args:
            store: The store.
            directory: Directory of the segment.
            files: Names of its files.
            next_base_offset: Base offset of the next segment, None for the last one.
            topic_partition: Name of the partition, for errors.
            facts: Result of listing the directory, by name.
            pass_over_damage: Skip damage in searches; accept a file that is too large.

        Raises:
            FileNotFoundError: If the .log was renamed or removed.
            OSError: If it cannot be opened or is not a regular file.
            CorruptLog: If it is larger than a segment can be, unless pass_over_damage.
        """
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
                return read_index_entries(index.read, entry_size, max_index_bytes(file.size, entry_size))

        return cls(
            file, directory, files, read_index, next_base_offset, topic_partition, is_remote=store.is_remote,
            pass_over_damage=pass_over_damage,
        )  # fmt: skip

    def close(self) -> None:
        self._file.close()

    def up_to(self, end: int) -> SegmentFile:
        """Return the same open file, limited to the bytes before `end`."""
        return self.part(self.begin, end, self.first_offset)

    def part(self, begin: int, end: int, first_offset: int) -> SegmentFile:
        """Return the same open file, limited to the bytes [begin, end).

        Positions and indexes remain those of the whole file. Closing either object closes both.

        Args:
            begin: Position of a batch.
            end: Position after the last batch.
            first_offset: Lowest offset that the first batch may have.
        """
        part = copy(self)
        part.begin, part.size, part.first_offset = begin, min(end, self.size), first_offset
        part.is_whole, part.excess = False, 0
        return part

    def __enter__(self) -> SegmentFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def has_changed(self) -> bool:
        """Return True if the .log was written to, truncated, replaced or removed since it was opened."""
        return self._file.has_changed()

    @property
    def is_last(self) -> bool:
        """True if it was the last segment when the partition was listed. Only that segment may end in a torn batch."""
        return self.next_base_offset is None

    def read(self, position: int, size: int) -> bytes:
        """Return the bytes [position, position + size); fewer only at the end of the file."""
        try:
            data = self._file.read(position, size)
        except OSError as error:
            self._fail(error, position)
        self.bytes_read += len(data)
        return data

    def read_into(self, position: int, target: memoryview) -> int:
        """Fill `target` from `position` on; return the number of bytes, fewer only at the end of the file."""
        try:
            filled = self._file.read_into(position, target)
        except OSError as error:
            self._fail(error, position)
        self.bytes_read += filled
        return filled

    def expect(self, position: int, end: int) -> None:
        """Prefetch, from an object store, the batches from `position` to that of offset `end`."""
        if not self.is_remote:
            return
        until = self.size
        if self.next_base_offset is None or end < self.next_base_offset:
            # The batch of the first entry may begin before `end`, so it is read. That of the second entry does not.
            _, positions = self.offset_index.entries_after(end)
            until = min([until, *positions[1:2].tolist()])
        self._file.expect(position, until)

    def _fail(self, error: OSError, position: int) -> NoReturn:
        """Raise NotALogDirectory for a failed read.

        A failing disk is neither a torn tail nor a wrong hint, so searches for these must not catch the error.
        """
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
        """The offset index, parsed but not checked; empty if it is missing or cannot be read."""
        data = self._index_bytes(self.files.offset_index, offset_index.ENTRY_SIZE)
        return parse_offset_index(data, self.base_offset)

    @cached_property
    def time_index(self) -> TimeIndex:
        """The time index, parsed but not checked; empty if it is missing or cannot be read."""
        return parse_time_index(self._index_bytes(self.files.time_index, time_index.ENTRY_SIZE), self.base_offset)

    def _index_bytes(self, name: str | None, entry_size: int) -> bytes:
        try:
            return self.read_index(name, entry_size)
        except OSError:
            return b""  # an index is only a hint; without an index, the .log is read from its first byte

    def read_index(self, name: str | None, entry_size: int) -> bytes:
        """Return the bytes of an index file without most of its padding; none if there is no file. Raises OSError."""
        data = b"" if name is None else self._read_index(name, entry_size)
        self.bytes_read += len(data)
        return data

    def aborted(self) -> list[AbortedTransaction]:
        """Return the entries of the .txnindex, none if there is no such file. Raises CorruptIndex, OSError."""
        data = self.read_index(self.files.transaction_index, transaction_index.ENTRY_SIZE)
        return transaction_index.parse_transaction_index(data, self.base_offset)

    def header_at(self, position: int) -> BatchHeader | None:
        """Return the header at `position`; None if the file ends before the batch does. Raises as `parse_header`."""
        return self._header_in(self.read(position, _HEADER_READ), 0, position)

    def header_or_none(self, position: int) -> BatchHeader | None:
        """Return the header at `position`, None if the batch is not whole or the bytes are not a valid header."""
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
        """Return the header at `position` if the batch is whole and its CRC is valid, else None."""
        header = self.header_or_none(position) if 0 <= position < self.size else None
        return header if header is not None and batch_header.crc_in_pieces(self.read, header) == header.crc else None

    def check_crc(self, header: BatchHeader) -> None:
        """Read the batch of `header`, and raise CorruptBatch if its CRC is wrong."""
        batch_header.compare_crc(header, batch_header.crc_in_pieces(self.read, header))

    def headers(self, position: int = 0) -> Iterator[BatchHeader]:
        """Yield the headers from `position` to the last whole batch. CRCs are not checked. Raises as `parse_header`."""
        data, start, read_size = b"", position, _CHUNK_READ
        while True:
            at = position - start
            header = self._header_in(data, at, position)
            if header is None:
                start = position
                data = self.read(position, read_size)
                header = self._header_in(data, 0, position)
                if header is None:
                    return
            yield header
            read_size = _HEADER_READ if header.size >= _LARGE_BATCH else _CHUNK_READ
            position = header.end

    def good_headers(self, position: int = 0) -> Iterator[BatchHeader]:
        """Yield headers like `headers`, each once its CRC was checked. Raises CorruptBatch for a wrong one."""
        for header in self.headers(position):
            self.check_crc(header)
            yield header

    def windows(self, position: int = 0) -> Iterator[CheckedWindow]:
        """Yield windows of its good batches (`header_windows`). Raises NotALogDirectory if the file cannot be read."""
        try:
            yield from header_windows(self._file, self.size, position)
        except OSError as error:
            self._fail(error, position)

    def blame(self, error: KafkalogError) -> KafkalogError:
        """Add topic-partition and file to an error."""
        return error.at(topic_partition=self.topic_partition, path=self.path)


def too_large(size: int) -> str:
    """Return the error text for a .log file that is larger than a segment can be."""
    return f"the segment has {size} bytes; Kafka's segments have {layout.MAX_SEGMENT_SIZE} at most (positions are i32)"
