"""Windows of batch headers whose offsets increase and fit into the indexes of their segment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from kafkalog_spark.errors import CorruptBatch, KafkalogError
from kafkalog_spark.format.index_file import MAX_RELATIVE_OFFSET
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.log.codecs.scratch import Scratch
from kafkalog_spark.log.read.header_windows import HeaderTable, Window, header_windows
from kafkalog_spark.store.local_store import DescriptorFile


class OffsetOverflow(Exception):
    """An offset is too far above the base offset of its segment for an index entry, so the segment must be split.

    Kafka: LogSegmentOffsetOverflowException.
    """

    def __init__(self, path: Path, base_offset: int, last_offset: int, position: int) -> None:
        super().__init__(
            f"{path}: the batch at byte {position} ends with offset {last_offset}, but the indexes of this segment end "
            f"with offset {base_offset + MAX_RELATIVE_OFFSET}"
        )
        self.base_offset = base_offset


def ordered_windows(
    fd: int,
    path: Path,
    base_offset: int,
    end: int,
    start: int = 0,
    buffer: Scratch | None = None,
) -> Iterator[tuple[Window, KafkalogError | None]]:
    """Yield the windows of a .log file up to the first damaged batch or the first batch whose offsets do not increase.

    Args:
        fd: Descriptor of the .log.
        path: Path of the .log, for errors.
        base_offset: Base offset of the segment.
        end: Position in the file at which to stop.
        start: Position of the first batch.
        buffer: Buffer for `header_windows`.

    Yields:
        The ordered batches of a window, and the error of the batch after them, with path and offset, or None.

    Raises:
        OffsetOverflow: If an offset is too far above `base_offset` for an index entry.
    """
    next_offset = base_offset
    for window, error in header_windows(DescriptorFile(fd), end, start, buffer):
        table = window.table
        ordered = _count_ordered(table, base_offset, next_offset)
        if ordered < len(table):
            first, last = int(table[ordered, HeaderColumn.BASE_OFFSET]), int(table[ordered, HeaderColumn.LAST_OFFSET])
            position = int(table[ordered, HeaderColumn.POSITION])
            expected = int(table[ordered - 1, HeaderColumn.LAST_OFFSET]) + 1 if ordered else next_offset
            if expected <= first <= last:
                raise OffsetOverflow(path, base_offset, last, position)
            what = f"a batch has offsets {first} to {last}, expected {expected} or higher"
            yield window.first(ordered), CorruptBatch(what, path=str(path), position=position, offset=expected)
            return
        if len(table):
            next_offset = int(table[-1, HeaderColumn.LAST_OFFSET]) + 1
        yield window, None if error is None else error.at(path=str(path), offset=next_offset)


def _count_ordered(table: HeaderTable, base_offset: int, next_offset: int) -> int:
    """Return the number of leading rows whose offsets increase and fit into an index of the segment.

    Args:
        table: Batch headers, one a row, with the columns of `HeaderColumn`.
        base_offset: Base offset of the segment.
        next_offset: Lowest base offset that the first row may have.
    """
    previous = np.empty(len(table), np.int64)
    previous[:1] = next_offset - 1
    previous[1:] = table[:-1, HeaderColumn.LAST_OFFSET]
    ordered = (table[:, HeaderColumn.BASE_OFFSET] > previous) & (
        table[:, HeaderColumn.LAST_OFFSET] >= table[:, HeaderColumn.BASE_OFFSET]
    )
    ordered &= table[:, HeaderColumn.LAST_OFFSET] <= base_offset + MAX_RELATIVE_OFFSET
    return len(ordered) if ordered.all() else int(np.argmin(ordered))
