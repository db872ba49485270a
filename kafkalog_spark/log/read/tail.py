"""Where the last records of a partition begin, found from its end.

Steps of bytes are read backward, each four times as large as the one before, until there are as many records as asked
for. They are counted as a scan gives them: holes, control batches, aborted transactions and damage count for nothing.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.log.format.layout import MAX_INT64, MIN_INT64
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.partition_scan import ScanRequest, ScanStatistics, scan_partition
from kafkalog_spark.log.read.record_schema import COLUMN_TYPES
from kafkalog_spark.log.read.scan_space import ScanSpace
from kafkalog_spark.log.read.wanted_records import EVERY_RECORD

FIRST_STEP = 64 << 10
"""Bytes. One read, which takes no longer than opening the segment: some 600 records of 100 B."""
_GROWTH = 4
_LARGEST_STEP = 32 << 20
"""Bytes. What is kept of a step are the offsets of its records, 8 bytes each."""


def tail_start(
    log: PartitionLog, start: int, end: int, count: int, request: ScanRequest, *, space: ScanSpace | None = None
) -> int:
    """The offset from which [start, end) holds the last `count` records of it; `start` where there are fewer.

    request: what `scan_partition` will be asked for; its conditions on timestamps, offsets and contents are no part of
    the question, so they narrow what the tail holds. Damage is passed over here: whether it lies in the tail, which is
    read next, decides whether it is an error. What has gone since the log was listed is not there. Raises
    NotALogDirectory, and with read_committed what `aborted_transactions` raises.
    """
    space = space or ScanSpace()
    # Damage inside a batch shows in the columns that are decoded: the same ones decide what is counted.
    shown = [name for name in request.columns if name in COLUMN_TYPES and name != "offset"]
    asked = replace(
        request,
        columns=("offset", *(shown if request.drop_malformed else ())),
        timestamp_from_ms=MIN_INT64,
        timestamp_until_ms=MAX_INT64,
        offset_in=(),
        timestamp_in_ms=(),
        wanted=EVERY_RECORD,
        drop_malformed=True,
    )
    until, missing, step = end, count, FIRST_STEP
    while until > start and missing > 0:
        begin = max(_offset_before(log, until, step), start)
        offsets = _last_offsets(log, begin, until, missing, asked, space)
        if len(offsets) == missing:
            return int(offsets[0])
        missing -= len(offsets)
        until, step = begin, min(step * _GROWTH, _LARGEST_STEP)
    return start


def _last_offsets(
    log: PartitionLog, start: int, end: int, count: int, request: ScanRequest, space: ScanSpace
) -> np.ndarray:
    """int64[at most count], the last offsets of records in [start, end)."""
    found: list[np.ndarray] = []
    held = 0
    for batch in scan_partition(
        log, start, end, request, statistics=ScanStatistics(), on_loss=_not_the_answer, space=space
    ):
        # a copy: the buffers of the batch are filled again
        found.append(np.array(batch.column(0).to_numpy(zero_copy_only=True)))
        held += len(found[-1])
        while held - len(found[0]) >= count:
            held -= len(found.pop(0))
    return np.concatenate(found)[-count:] if found else np.empty(0, np.int64)


def _not_the_answer(gone: KafkalogError) -> None:
    """Records that go while they are counted: the answer is one of those that are there."""


def _offset_before(log: PartitionLog, until: int, size: int) -> int:
    """An offset below `until` from which about `size` bytes lead there, within one segment. Any will do: the offset
    index is asked, and nothing depends on its being right."""
    file = log.open_segment_at(until - 1)
    if file is None:
        return until - 1
    with file:
        index = file.offset_index
        _, after = index.entries_after(until - 1)
        end = int(after[0]) if len(after) else file.size
        begin = index.floor_position(max(end - size, 0)).offset
        return begin if file.base_offset < begin < until else min(file.base_offset, until - 1)
