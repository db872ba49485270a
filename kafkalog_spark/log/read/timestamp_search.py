"""Searches for the first offset of a partition with a record at or after a timestamp."""

from __future__ import annotations

from contextlib import suppress

from kafkalog_spark.errors import CorruptBatch, UnsupportedFormat
from kafkalog_spark.log.decode.scan_request import ScanRequest
from kafkalog_spark.log.read.deleted_records import ignore_loss
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.partition_scan import scan_partition
from kafkalog_spark.log.read.segment_lookup import largest_timestamp


def offset_for_timestamp(log: PartitionLog, timestamp_ms: int) -> int | None:
    """Return the first offset whose record has a timestamp >= `timestamp_ms`, None if there is none.

    Records of control batches count (Kafka: ListOffsets, `FileRecords.searchForTimestamp`). Segments and batches are
    skipped by their largest timestamps.

    Raises:
        CorruptBatch, UnsupportedFormat: For damage, unless the log was opened with pass_over_damage.
    """
    request = ScanRequest(
        columns=("offset",),
        timestamp_from_ms=timestamp_ms,
        first_batch_rows=1,
        control_records=True,
        drop_malformed=log.pass_over_damage,
    )
    offset, end, tries = log.log_start_offset, log.log_end_offset, 0
    log.prefetch_segments(offset, end)
    while offset < end:
        if log.segments:
            index = log.segment_index(offset)
            largest, following = log.largest_timestamp(index), log.next_base_offset(index)
            if largest is not None and largest < timestamp_ms and following is not None:
                offset = max(offset, following)
                continue
        file = log.open_segment_at(offset)
        if file is None:
            return None
        is_older, until = False, end if file.next_base_offset is None else min(file.next_base_offset, end)
        try:
            with file:
                if file.next_base_offset is not None:
                    # The scan meets the same damage, and finds out whether the log has only changed.
                    with suppress(CorruptBatch, UnsupportedFormat):
                        is_older = largest_timestamp(file) < timestamp_ms
        except FileNotFoundError as gone:
            tries += 1
            log.refresh_after_replacement(file, gone, tries)
            continue
        if not is_older:
            start = max(offset, file.base_offset)
            for batch in scan_partition(log, start, until, request, on_loss=ignore_loss):
                return int(batch.column(0)[0].as_py())
        offset = until
    return None
