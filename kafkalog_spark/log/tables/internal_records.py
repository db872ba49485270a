"""The records of an internal topic, one after the other in plain Python: thousands, where topics have millions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from kafkalog_spark.log.format import layout
from kafkalog_spark.log.format.layout import H
from kafkalog_spark.log.read.header_windows import Window
from kafkalog_spark.log.read.last_stable_offset import aborted_transactions
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.tables.damage import stretches

Record = tuple[int, bytes | None, bytes | None]
"""Offset, key, value."""


def committed_records(log: PartitionLog) -> Iterator[Record]:
    """All records but those of aborted and of open transactions, as a coordinator that loads them applies them.

    Damage is passed over where the log was opened so; else it raises CorruptBatch.
    """
    from kafkalog_spark.log.read.partition_scan import ScanRequest, scan_partition  # loads the kernels

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
