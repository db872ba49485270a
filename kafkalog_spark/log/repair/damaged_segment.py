"""Division of a segment into windows of good batches and the damaged bytes between them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.log.read.batch_search import find_batch_behind
from kafkalog_spark.log.read.header_windows import Window
from kafkalog_spark.log.read.log_end import check_torn
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.segment_file import SegmentFile, too_large
from kafkalog_spark.log.read.segment_lookup import locate


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes [position, position + size) that are not a good batch, or a batch that does not fit into the log.

    Attributes:
        error: What is wrong.
        header: Header of a batch of exactly these bytes, of which the CRC or more is wrong; None if there is none.
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

    Args:
        file: The segment. The bytes of a window are overwritten when the next one is read.
        position: Byte at which a batch begins.
        recovery_point: Offset up to which the log was flushed, if known. A torn tail can only begin after it.

    Raises:
        NotALogDirectory: If the file cannot be read.
    """
    next_offset = file.base_offset
    while True:
        wrong: KafkalogError | None = None
        for window, wrong in file.windows(position):  # noqa: B007 - looked at after the loop
            if len(window.table):
                position = int(window.table[-1, HeaderColumn.POSITION] + window.table[-1, HeaderColumn.SIZE])
                after = int(window.table[-1, HeaderColumn.LAST_OFFSET]) + 1
                if file.next_base_offset is None or after <= file.next_base_offset:  # else the offset is wrong
                    next_offset = after
                yield window
        if wrong is None:
            break
        torn = False
        if file.is_last:
            with suppress(KafkalogError):
                check_torn(file, position, next_offset, recovery_point, wrong)
                torn = True
        # Search from the base offset on, not from next_offset: the batch before may have a wrong, too high offset.
        found = None if torn else find_batch_behind(file, position, file.base_offset)
        end = file.size if found is None else found.position
        what = wrong.what if not torn else f"a torn tail, which the next start of a broker truncates: {wrong.what}"
        header = file.header_or_none(position)
        whole = header if header is not None and header.end == end else None
        yield Damage(position, end - position, what, whole, torn)
        if found is None:
            break
        position = end
    if file.excess:
        yield Damage(file.size, file.excess, too_large(file.size + file.excess))


def windows_from(log: PartitionLog, start: int) -> Iterator[Window]:
    """Yield windows with the good batches of a log from offset `start` on.

    Raises:
        NotALogDirectory: If a file cannot be read.
        FileNotFoundError: If a segment was deleted meanwhile.
    """
    for index in range(log.segment_index(start), len(log.segments)):
        with log.open_segment(index) as file:
            position = locate(file, start) if start > file.base_offset else 0
            parts = windows_and_damage(file, position, log.recovery_point)
            yield from (part for part in parts if isinstance(part, Window))
