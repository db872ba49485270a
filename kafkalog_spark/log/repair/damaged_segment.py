"""A segment from its first byte to its last: good batches, and the damage between them, with nothing left out; and
which of the good batches stand in the log, with the offsets that are missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.log.read.batch_search import find_batch_behind, judge_tail
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.segment_file import SegmentFile, Window, too_large

if TYPE_CHECKING:
    pass  # loads the kernels


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes [position, position + size) that are no good batch, or none that stands in the log. header: of a batch that
    begins there and ends with them; its CRC, at least, is wrong. is_torn_tail: an interrupted write explains it."""

    position: int
    size: int
    error: str
    header: BatchHeader | None = None
    is_torn_tail: bool = False


def stretches(file: SegmentFile, position: int = 0, recovery_point: int | None = None) -> Iterator[Window | Damage]:
    """The whole segment from the batch at `position` on. A window's bytes are gone when the next one comes.
    recovery_point: offset up to which the log was flushed: a torn tail begins after it. Raises NotALogDirectory."""
    next_offset = file.base_offset
    while True:
        wrong: KafkalogError | None = None
        for window, wrong in file.windows(position):  # noqa: B007 - looked at after the loop
            if len(window.table):
                position = int(window.table[-1, HeaderColumn.POSITION] + window.table[-1, HeaderColumn.SIZE])
                after = int(window.table[-1, HeaderColumn.LAST_OFFSET]) + 1
                if file.next_base_offset is None or after <= file.next_base_offset:  # else an offset that was changed
                    next_offset = after
                yield window
        if wrong is None:
            break
        torn = False
        if file.is_last:
            with suppress(KafkalogError):
                judge_tail(file, position, next_offset, recovery_point, wrong)
                torn = True
        # Not from next_offset on: the batch before may be one that came here from further on in the file.
        found = None if torn else find_batch_behind(file, position, file.base_offset)
        end = file.size if found is None else found.position
        what = wrong.what if not torn else f"a torn tail, which the next start of a broker cuts off: {wrong.what}"
        header = file.header_or_none(position)
        whole = header if header is not None and header.end == end else None
        yield Damage(position, end - position, what, whole, torn)
        if found is None:
            break
        position = end
    if file.excess:
        yield Damage(file.size, file.excess, too_large(file.size + file.excess))


def windows_from(log: PartitionLog, start: int) -> Iterator[Window]:
    """The good batches from offset `start` on. Raises NotALogDirectory, FileNotFoundError when a segment goes away."""
    for index in range(log.segment_index(start), len(log.segments)):
        with log.open_segment(index) as file:
            position = file.locate(start) if start > file.base_offset else 0
            yield from (part for part in stretches(file, position, log.recovery_point) if isinstance(part, Window))
