"""Recovers a segment after an unclean shutdown (Kafka: LogSegment.recover)."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format import names
from kafkalog_spark.format.atomic_file import replace_file
from kafkalog_spark.format.fsync import fsync_descriptor
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.format.regular_file import descriptor
from kafkalog_spark.log.read.header_windows import Window
from kafkalog_spark.log.write.index_builder import IndexBuilder
from kafkalog_spark.log.write.ordered_windows import ordered_windows
from kafkalog_spark.log.write.segment_roll import INDEX_INTERVAL_BYTES


@dataclass(frozen=True, slots=True)
class RecoveredSegment:
    """Result of `recover_segment`.

    Attributes:
        base_offset: Base offset of the segment.
        next_offset: Offset after the last good batch.
        size: Size of the .log after the recovery, in bytes.
        truncated_bytes: Number of bytes removed from the end of the .log.
        largest_timestamp: In ms, or -1 if no batch has a timestamp.
        damage: Error of the first bad batch, or None if all batches are good.
    """

    base_offset: int
    next_offset: int
    size: int
    truncated_bytes: int
    largest_timestamp: int
    damage: KafkalogError | None


def recover_segment(
    directory: Path,
    base_offset: int,
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    on_window: Callable[[Window], None] | None = None,
    on_bytes: Callable[[int], None] | None = None,
    *,
    find_bad_batch: Callable[[Window], tuple[int, KafkalogError] | None] | None = None,
    before_truncation: Callable[[], None] = lambda: None,
    may_truncate: bool = True,
    sync: bool = False,
) -> RecoveredSegment:
    """Check every batch of a segment, truncate the .log after the last good one, and rebuild .index and .timeindex.

    A batch is good if it is whole, its CRC is valid, its offsets increase and `find_bad_batch` accepts it. The first
    bad batch and everything after it is removed, as in Kafka. The indexes are those of a segment that was closed
    cleanly. A truncation is fsynced before the function returns, so removed bytes cannot reappear behind later appends.

    Args:
        directory: Partition directory.
        base_offset: Base offset of the segment.
        index_interval_bytes: Bytes of batches between two index entries (index.interval.bytes).
        on_window: Called with each window of good batches, in order, before the indexes are written. The bytes of a
            window are valid only during the call.
        on_bytes: Called with the number of bytes of the good batches of each window.
        find_bad_batch: Returns the row of the first bad batch of a window and the error, or None if all batches are
            good.
        before_truncation: Called before the .log is truncated.
        may_truncate: False to raise the damage instead of truncating the .log; no file is then changed.
        sync: True to fsync the .log and both indexes.

    Raises:
        OffsetOverflow: If the segment must be split; no file is then changed.
        KafkalogError: If a batch is bad and `may_truncate` is False.
        OSError: If a file cannot be read or written.
    """
    path = directory / (names.segment_name(base_offset) + names.LOG_SUFFIX)
    indexes = IndexBuilder(base_offset, index_interval_bytes)
    position = 0
    next_offset = base_offset
    damage: KafkalogError | None = None
    with descriptor(path, os.O_RDWR) as fd:
        end = os.fstat(fd).st_size
        for window, error in ordered_windows(fd, path, base_offset, end) if end else ():
            bad_batch = None if find_bad_batch is None else find_bad_batch(window)
            if bad_batch is not None:
                good_count, error = bad_batch
                window = window.first(good_count)
            if len(window.table):
                if on_window is not None:
                    on_window(window)
                indexes.add(window.table)
                last = window.table[-1]
                window_end = int(last[HeaderColumn.POSITION] + last[HeaderColumn.SIZE])
                if on_bytes is not None:
                    on_bytes(window_end - position)
                position = window_end
                next_offset = int(last[HeaderColumn.LAST_OFFSET]) + 1
            if error is not None:
                damage = error.at(path=str(path), position=position, offset=next_offset)
                if not may_truncate:
                    raise damage
                break
        if position < end:
            before_truncation()
            os.ftruncate(fd, position)
        if sync or position < end:
            fsync_descriptor(fd)
    _write_indexes(path, indexes, sync=sync)
    return RecoveredSegment(base_offset, next_offset, position, end - position, indexes.max_timestamp, damage)


def _write_indexes(path: Path, indexes: IndexBuilder, *, sync: bool) -> None:
    """Write the indexes of the .log at `path`. Unless `sync`, a file that already has the content is not replaced."""
    contents = indexes.build()
    for suffix, data in (
        (names.OFFSET_INDEX_SUFFIX, contents.offset_index), (names.TIME_INDEX_SUFFIX, contents.time_index),
    ):  # fmt: skip
        index = path.with_suffix(suffix)
        if sync or not _has_content(index, data):
            replace_file(index, data, sync=sync)


def _has_content(path: Path, data: bytes) -> bool:
    """Return True if the file already has this content. Then no rename is needed; a broker start recovers many logs."""
    try:
        return path.stat().st_size == len(data) and (not data or path.read_bytes() == data)
    except FileNotFoundError:
        return False
