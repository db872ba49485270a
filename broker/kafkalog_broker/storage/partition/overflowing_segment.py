"""Split of a segment whose offsets are too large for its indexes (Kafka: `splitOverflowedSegment`).

An index entry stores the offset relative to the base offset, in 31 bits.

Brokers before Kafka 1.1.1 could write such segments during compaction (KAFKA-6264). The bytes are copied unchanged into
several segments, which replace the old one in the same way as cleaned segments.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kafkalog_broker.storage.partition.cleaned_segment import CleanedSegment, publish, segment_containing
from kafkalog_spark.errors import CorruptLog, UnsupportedFormat
from kafkalog_spark.format import names
from kafkalog_spark.format.fsync import fsync_directory
from kafkalog_spark.format.index_file import MAX_RELATIVE_OFFSET
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.format.regular_file import open_regular
from kafkalog_spark.format.transaction_index import load_transaction_index
from kafkalog_spark.log.read.header_windows import Window, header_windows
from kafkalog_spark.store.local_store import DescriptorFile

_COPY_SIZE = 1 << 20  # bytes per read


def split_segment(directory: Path, base_offset: int, index_interval_bytes: int) -> list[int]:
    """Replace a segment of a log that is not open by segments without overflow.

    Returns:
        Their base offsets.

    Raises:
        OSError: If a file cannot be read, written or renamed.
    """
    pieces = write_pieces(directory, base_offset, index_interval_bytes)
    publish(pieces)
    plain = [directory / (names.segment_name(base_offset) + suffix) for suffix in names.SEGMENT_SUFFIXES]
    for path in plain:
        if path.exists():
            path.rename(path.with_name(path.name + names.DELETED_SUFFIX))
    fsync_directory(directory)
    for piece in pieces:
        piece.to_live()
    fsync_directory(directory)
    for path in plain:
        path.with_name(path.name + names.DELETED_SUFFIX).unlink(missing_ok=True)
    return [piece.base_offset for piece in pieces]


def write_pieces(directory: Path, base_offset: int, index_interval_bytes: int) -> list[CleanedSegment]:
    """Copy a segment's bytes into several finished `.cleaned` segments.

    The first one has the old base offset and may be empty. Bytes after the last good batch are copied too, and left to
    recovery.

    Raises:
        OSError: If a file cannot be read or written; no file is left then.
    """
    pieces: list[CleanedSegment] = []
    fd = open_regular(directory / (names.segment_name(base_offset) + names.LOG_SUFFIX))
    try:
        stat = os.fstat(fd)
        pieces.append(CleanedSegment(directory, base_offset, index_interval_bytes))
        next_offset = base_offset
        for window, _ in header_windows(DescriptorFile(fd), stat.st_size):
            for begun, ended, base in _split_into_runs(window, pieces[-1].base_offset, next_offset):
                if base != pieces[-1].base_offset:
                    pieces.append(CleanedSegment(directory, base, index_interval_bytes))
                _copy(fd, window.table[begun:ended], pieces[-1])
            if len(window.table):
                next_offset = int(window.table[-1, HeaderColumn.LAST_OFFSET]) + 1
        copied = sum(piece.size for piece in pieces)
        while copied < stat.st_size:
            copied += pieces[-1].append_unread(os.pread(fd, _COPY_SIZE, copied))
        try:
            path = directory / (names.segment_name(base_offset) + names.TRANSACTION_INDEX_SUFFIX)
            for aborted in load_transaction_index(path, base_offset):  # an entry belongs to the segment of its marker
                segment_containing(aborted.last_offset, pieces).aborted.append(aborted)
        except (CorruptLog, UnsupportedFormat):
            pass  # recovery rebuilds the index
        for piece in pieces:
            piece.finish(stat.st_mtime_ns)
    except BaseException:
        for piece in pieces:
            piece.discard()
        raise
    finally:
        os.close(fd)
    return pieces


def _split_into_runs(window: Window, base_offset: int, next_offset: int) -> list[tuple[int, int, int]]:
    """Split the rows of a window into runs of adjacent batches that go into the same segment.

    Returns:
        First row, row after the last, base offset of the segment; for each run.
    """
    runs: list[tuple[int, int, int]] = []
    begun = 0
    last_offsets = window.table[:, HeaderColumn.LAST_OFFSET]
    while begun < len(window.table):
        too_far = np.flatnonzero(last_offsets[begun:] - base_offset > MAX_RELATIVE_OFFSET)
        ended = begun + int(too_far[0]) if len(too_far) else len(window.table)
        if ended > begun:
            runs.append((begun, ended, base_offset))
        if ended < len(window.table):
            row = window.table[ended]
            # A message of format v0 or v1 may be a wrapper, whose first offset is not in its header.
            lowest = int(last_offsets[ended - 1]) + 1 if ended else next_offset
            base_offset = max(lowest, int(row[HeaderColumn.LAST_OFFSET]) - MAX_RELATIVE_OFFSET)
            if row[HeaderColumn.MAGIC] == 2:
                base_offset = max(lowest, int(row[HeaderColumn.BASE_OFFSET]))
        begun = ended
    return runs


def _copy(fd: int, table: npt.NDArray[np.int64], piece: CleanedSegment) -> None:
    """Append the batches of `table`, which are adjacent in the file."""
    batches = table[:, [HeaderColumn.SIZE, HeaderColumn.LAST_OFFSET, HeaderColumn.MAX_TIMESTAMP]]
    begun = 0
    while begun < len(table):
        sizes = np.cumsum(table[begun:, HeaderColumn.SIZE])
        ended = begun + max(int(np.searchsorted(sizes, _COPY_SIZE, side="right")), 1)
        size = int(table[begun:ended, HeaderColumn.SIZE].sum())
        piece.append(os.pread(fd, size, int(table[begun, HeaderColumn.POSITION])), batches[begun:ended])
        begun = ended
