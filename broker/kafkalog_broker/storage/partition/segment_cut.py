"""Cut the files of a segment (LogSegment.truncateTo)."""

from __future__ import annotations

import os

import numpy as np

from kafkalog_broker.storage.partition.log_segment import LogSegment
from kafkalog_spark.log.format import names
from kafkalog_spark.log.format.durable import descriptor
from kafkalog_spark.log.format.layout import NO_TIMESTAMP
from kafkalog_spark.log.format.offset_index import ENTRY_SIZE as OFFSET_ENTRY
from kafkalog_spark.log.format.offset_index import load_offset_index
from kafkalog_spark.log.format.time_index import ENTRY_SIZE as TIME_ENTRY
from kafkalog_spark.log.format.time_index import TimeIndexWriter
from kafkalog_spark.log.format.transaction_index import ENTRY_SIZE as ABORTED_ENTRY
from kafkalog_spark.log.format.transaction_index import load_transaction_index
from kafkalog_spark.log.write.segment_headers import headers_from


def cut_segment(segment: LogSegment, position: int, offset: int) -> None:
    """Cut the .log of a segment without a writer at byte `position`, where the first batch that ends at or after
    `offset` begins, and its indexes to what they say of the batches before.

    The time index ends with the largest timestamp that is left, as after a clean close; Kafka leaves it at its last
    sparse entry, with which a search by time may pass the segment over. After a crash on the way the segment is
    recovered: it is the last one. Raises OSError, CorruptLog.
    """
    base = segment.base_offset
    index = load_offset_index(segment.path(names.OFFSET_INDEX_SUFFIX), base)
    entries = int(np.searchsorted(index.offsets, offset))
    times = segment.time_index()
    time_entries = int(np.searchsorted(times.offsets, offset))
    aborted = load_transaction_index(segment.path(names.TRANSACTION_INDEX_SUFFIX), base)
    kept = sum(transaction.last_offset < offset for transaction in aborted)
    with descriptor(segment.log_path, os.O_RDWR) as fd:
        # What comes after the last entry of the offset index may have a timestamp that the time index does not tell.
        start = int(index.positions[entries - 1]) if entries else 0
        latest = (NO_TIMESTAMP, base)
        for header in headers_from(fd, start, position):
            if header.max_timestamp > latest[0]:
                latest = (header.max_timestamp, header.last_offset)
        os.ftruncate(fd, position)
    os.truncate(segment.path(names.OFFSET_INDEX_SUFFIX), entries * OFFSET_ENTRY)
    time_path = segment.path(names.TIME_INDEX_SUFFIX)
    os.truncate(time_path, time_entries * TIME_ENTRY)
    with TimeIndexWriter.open_existing(time_path, base) as writer:
        writer.maybe_append(*latest, skip_full_check=True)
        writer.trim()
    if kept:
        os.truncate(segment.path(names.TRANSACTION_INDEX_SUFFIX), kept * ABORTED_ENTRY)
    elif aborted:
        os.unlink(segment.path(names.TRANSACTION_INDEX_SUFFIX))
