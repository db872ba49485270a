"""A segment from its first byte to its last: good batches, and the damage between them, with nothing left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kafkalog_spark.errors import CorruptBatch, KafkalogError, UnsupportedFormat
from kafkalog_spark.log.format.batch_header import BatchHeader
from kafkalog_spark.log.format.layout import H
from kafkalog_spark.log.read.batch_search import find_batch_behind
from kafkalog_spark.log.read.header_windows import Window
from kafkalog_spark.log.read.log_end import judge_tail
from kafkalog_spark.log.read.segment_file import SegmentFile, too_large


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes [position, position + size) that are no good batch.

    header: where a batch begins there whose own length takes it to the end of the stretch; its CRC, at least, is
    wrong, so any field may be. is_torn_tail: an interrupted write explains it. next_offset: after the good batch
    before; found: base offset of the good one after it, None at the end of the segment.
    """

    position: int
    size: int
    error: str
    header: BatchHeader | None
    is_torn_tail: bool
    next_offset: int
    found: int | None


Stretch = Window | Damage


def stretches(file: SegmentFile, position: int = 0, recovery_point: int | None = None) -> Iterator[Stretch]:
    """The whole segment from the batch at `position` on. A window's bytes are gone when the next one comes.

    recovery_point: offset up to which the log was flushed, where that is known: a torn tail begins after it. Raises
    NotALogDirectory where the file cannot be read.
    """
    next_offset = file.base_offset
    while True:
        wrong: KafkalogError | None = None
        for window, wrong in file.windows(position):  # noqa: B007 - looked at after the loop
            if len(window.table):
                position = int(window.table[-1, H.POSITION] + window.table[-1, H.SIZE])
                after = int(window.table[-1, H.LAST_OFFSET]) + 1
                if file.next_base_offset is None or after <= file.next_base_offset:  # else an offset that was changed
                    next_offset = after
                yield window
        if wrong is None:
            break
        torn = _is_torn_tail(file, position, next_offset, recovery_point, wrong)
        # Not from next_offset on: the batch before may be one that came here from further on in the file.
        found = None if torn else find_batch_behind(file, position, file.base_offset)
        end = file.size if found is None else found.position
        what = wrong.what if not torn else f"a torn tail, which the next start of a broker cuts off: {wrong.what}"
        yield Damage(
            position, end - position, what, _whole(file, position, end), torn, next_offset, found and found.base_offset
        )
        if found is None:
            break
        position = end
    if file.excess:
        what = too_large(file.size + file.excess)
        yield Damage(file.size, file.excess, what, None, False, next_offset, None)


def _is_torn_tail(
    file: SegmentFile, position: int, next_offset: int, recovery_point: int | None, wrong: KafkalogError
) -> bool:
    if not file.is_last:
        return False
    try:
        judge_tail(file, position, next_offset, recovery_point, wrong)
    except KafkalogError:
        return False
    return True


def _whole(file: SegmentFile, position: int, end: int) -> BatchHeader | None:
    """The header at `position` if its batch ends at `end`."""
    try:
        header = file.header_at(position)
    except (CorruptBatch, UnsupportedFormat):
        return None
    return header if header is not None and header.end == end else None
