"""A segment from its first byte to its last: good batches, and the damage between them, with nothing left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kafkalog_spark.errors import CorruptBatch, KafkalogError, UnsupportedFormat
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.layout import H
from kafkalog_spark.log.read.batch_search import find_batch_behind
from kafkalog_spark.log.read.last_stable_offset import aborted_transactions
from kafkalog_spark.log.read.log_end import judge_tail
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.segment_file import SegmentFile, Window, too_large


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


# The records of an internal topic, one after the other in plain Python: thousands, where topics have millions.

Record = tuple[int, bytes | None, bytes | None]
"""Offset, key, value."""


def committed_records(log: PartitionLog) -> Iterator[Record]:
    """All records but those of aborted and of open transactions, as a coordinator that loads them applies them.

    Damage is passed over where the log was opened so; else it raises CorruptBatch.
    """
    from kafkalog_spark.log.decode.record_schema import ScanRequest
    from kafkalog_spark.log.read.partition_scan import scan_partition  # loads the kernels

    start, end = log.log_start_offset, log.log_end_offset
    hidden = _of_open_transactions(log, start, end)
    request = ScanRequest(columns=("offset", "key", "value"), read_committed=True, drop_malformed=log.pass_over_damage)
    for batch in scan_partition(log, start, end, request):
        for offset, key, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if not len(hidden) or not ((hidden[:, 0] <= offset) & (offset <= hidden[:, 1])).any():
                yield offset, key, value


def _of_open_transactions(log: PartitionLog, start: int, end: int) -> npt.NDArray[np.int64]:
    """int64[n, 2]: first and last offset of the batches of transactions that have not ended."""
    still_open = aborted_transactions(log, start, end, []).open
    ranges: list[npt.NDArray[np.int64]] = []
    if still_open:
        first = min(still_open.values())
        for index in range(log.segment_index(first), len(log.segments)):
            with log.open_segment(index) as file:
                for found in stretches(file):
                    if isinstance(found, Window):
                        ranges.append(_batches_of(found.table, still_open))
    return np.concatenate(ranges) if ranges else np.empty((0, 2), np.int64)


def _batches_of(table: npt.NDArray[np.int64], still_open: dict[int, int]) -> npt.NDArray[np.int64]:
    wanted = np.zeros(len(table), bool)
    kind = table[:, H.ATTRIBUTES] & (layout.ATTRIBUTE_TRANSACTIONAL | layout.ATTRIBUTE_CONTROL)
    for producer, first in still_open.items():
        wanted |= (table[:, H.PRODUCER_ID] == producer) & (table[:, H.BASE_OFFSET] >= first)
    wanted &= kind == layout.ATTRIBUTE_TRANSACTIONAL
    return table[wanted][:, [H.BASE_OFFSET, H.LAST_OFFSET]]
