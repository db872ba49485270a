"""The offset at which the last records of a partition begin (option `tail`).

The log is read backward from its end in growing steps, until they contain enough records. A scan counts the records,
so gaps, control batches, aborted transactions and damage do not count.
"""

from __future__ import annotations

import numpy as np

from kafkalog_spark.log.decode.record_schema import COLUMN_TYPES
from kafkalog_spark.log.decode.scan_buffers import ScanBuffers
from kafkalog_spark.log.decode.scan_request import ScanRequest
from kafkalog_spark.log.read.deleted_records import ignore_loss
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.partition_scan import scan_partition
from kafkalog_spark.log.read.segment_scan import ScanStatistics

FIRST_STEP = 64 << 10
"""Bytes of the first step: reading them takes no longer than opening the segment."""
_GROWTH = 4  # size of a step, relative to the one before
_LARGEST_STEP = 32 << 20  # bytes; only the offsets of the records in a step are kept in memory


def tail_start(log: PartitionLog, start: int, end: int, count: int, request: ScanRequest) -> int:
    """Return the offset from which [start, end) holds its last `count` records; `start` if it holds fewer.

    Damage is skipped here. If it is in the tail, the read that follows reports it. Records that were deleted since the
    log was listed do not count.

    Args:
        log: The partition.
        start: First offset of the range.
        end: End of the range.
        count: Number of records.
        request: Request of the read that follows. Its conditions are ignored: they narrow the tail, and do not extend
            it.

    Raises:
        NotALogDirectory: If the log cannot be read.
        KafkalogError: With read_committed, as `aborted_transactions`.
    """
    buffers = ScanBuffers()
    # Damage in records is found only in decoded columns, so decode those of the read, to count the same records.
    decoded = [name for name in request.columns if name in COLUMN_TYPES and name != "offset"]
    counting = ScanRequest(  # without the conditions of the read
        columns=("offset", *(decoded if request.drop_malformed else ())),
        read_committed=request.read_committed,
        max_decompressed=request.max_decompressed,
        drop_malformed=True,
        control_records=request.control_records,
        first_batch_rows=request.first_batch_rows,
    )
    until, missing, step = end, count, FIRST_STEP
    while until > start and missing > 0:
        begin = max(_offset_before(log, until, step), start)
        offsets = _last_offsets(log, begin, until, missing, counting, buffers)
        if len(offsets) == missing:
            return int(offsets[0])
        missing -= len(offsets)
        until, step = begin, min(step * _GROWTH, _LARGEST_STEP)
    return start


def _offset_before(log: PartitionLog, until: int, size: int) -> int:
    """Return an offset below `until`, in the same segment, about `size` bytes before it by the offset index.

    The index may be wrong; then more or less is read in this step.
    """
    file = log.open_segment_at(until - 1)
    if file is None:
        return until - 1
    with file:
        index = file.offset_index
        _, after = index.entries_after(until - 1)
        end = int(after[0]) if len(after) else file.size
        begin = index.floor_position(max(end - size, 0)).offset
        return begin if file.base_offset < begin < until else min(file.base_offset, until - 1)


def _last_offsets(
    log: PartitionLog, start: int, end: int, count: int, request: ScanRequest, buffers: ScanBuffers
) -> np.ndarray:
    """Return int64[at most count]: the last offsets of records in [start, end)."""
    found: list[np.ndarray] = []
    held = 0
    for batch in scan_partition(
        log, start, end, request, statistics=ScanStatistics(), on_loss=ignore_loss, buffers=buffers
    ):
        # a copy, because the buffers of the batch are filled again
        found.append(np.array(batch.column(0).to_numpy(zero_copy_only=True)))
        held += len(found[-1])
        while held - len(found[0]) >= count:
            held -= len(found.pop(0))
    return np.concatenate(found)[-count:] if found else np.empty(0, np.int64)
