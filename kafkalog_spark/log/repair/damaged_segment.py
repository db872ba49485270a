"""Divides a segment into windows of good batches and the damaged bytes between them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.log.read.batch_search import find_next_batch
from kafkalog_spark.log.read.header_windows import Window, batch_end
from kafkalog_spark.log.read.log_end import check_torn
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.segment_file import SegmentFile, too_large
from kafkalog_spark.log.read.segment_lookup import locate


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes [position, position + size) that are not a good batch, or a batch that does not fit into the log.

    Attributes:
        error: What is wrong.
        header: Header at `position`, if the batch that it announces has exactly these bytes; else None.
        is_torn_tail: True if an interrupted write explains the damage.
    """

    position: int
    size: int
    error: str
    header: BatchHeader | None = None
    is_torn_tail: bool = False


def windows_and_damage(
    file: SegmentFile, position: int = 0, recovery_point: int | None = None
) -> Iterator[Window | Damage]:
    """Yield all bytes of a segment from the batch at `position` on, as windows of good batches and as damage.

    The bytes of a window are overwritten when the next one is read.

    Args:
        file: The segment.
        position: Byte at which a batch begins.
        recovery_point: Offset up to which the log was flushed, if known. A torn tail can only begin after it.

    Raises:
        NotALogDirectory: If the file cannot be read.
    """
    next_offset = file.base_offset
    while True:
        error: KafkalogError | None = None
        for window, error in file.windows(position):  # noqa: B007 - the last error is used after the loop
            if len(window.table):
                position = batch_end(window.table[-1])
                offset_after = int(window.table[-1, HeaderColumn.LAST_OFFSET]) + 1
                # An offset beyond the segment is wrong.
                if file.next_base_offset is None or offset_after <= file.next_base_offset:
                    next_offset = offset_after
                yield window
        if error is None:
            break
        is_torn_tail = False
        if file.is_last:
            with suppress(KafkalogError):
                check_torn(file, position, next_offset, recovery_point, error)
                is_torn_tail = True
        # Search from the base offset on, not from next_offset: the batch before may have a wrong, too high offset.
        next_batch = None if is_torn_tail else find_next_batch(file, position, file.base_offset)
        end = file.size if next_batch is None else next_batch.position
        what = f"a torn tail, which the next start of a broker truncates: {error.what}" if is_torn_tail else error.what
        header = file.header_or_none(position)
        if header is not None and header.end != end:
            header = None
        yield Damage(position, end - position, what, header, is_torn_tail)
        if next_batch is None:
            break
        position = end
    if file.excess:
        yield Damage(file.size, file.excess, too_large(file.size + file.excess))


def windows_from(log: PartitionLog, start: int) -> Iterator[Window]:
    """Yield windows with the good batches of a log from offset `start` on.

    Raises:
        NotALogDirectory: If a file cannot be read.
        FileNotFoundError: If the segment was deleted during the read.
    """
    for index in range(log.segment_index(start), len(log.segments)):
        with log.open_segment(index) as file:
            position = locate(file, start) if start > file.base_offset else 0
            parts = windows_and_damage(file, position, log.recovery_point)
            yield from (part for part in parts if isinstance(part, Window))
