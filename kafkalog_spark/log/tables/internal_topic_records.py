"""Records of an internal topic: read from a partition, and reduced to the latest one of each key.

Records are decoded one by one in plain Python, because an internal topic has only thousands of records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog_spark.format import layout
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.log.read.aborted_transactions import aborted_transactions
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.repair.damaged_segment import windows_from


class RawRecord(NamedTuple):
    """A record with undecoded key and value."""

    offset: int
    key: bytes | None
    value: bytes | None


def committed_records(log: PartitionLog) -> Iterator[RawRecord]:
    """Yield all records but those of aborted and of open transactions. Raises as `scan_partition`."""
    from kafkalog_spark.log.decode.scan_request import ScanRequest
    from kafkalog_spark.log.read.partition_scan import scan_partition  # loads the kernels

    start, end = log.log_start_offset, log.log_end_offset
    uncommitted = _batches_of_open_transactions(log, start, end)
    request = ScanRequest(columns=("offset", "key", "value"), read_committed=True, drop_malformed=log.pass_over_damage)
    for batch in scan_partition(log, start, end, request):
        for offset, key, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if not len(uncommitted) or not ((uncommitted[:, 0] <= offset) & (offset <= uncommitted[:, 1])).any():
                yield RawRecord(offset, key, value)


def _batches_of_open_transactions(log: PartitionLog, start: int, end: int) -> npt.NDArray[np.int64]:
    """Return int64[n, 2]: the first and last offset of each batch of a transaction that has not ended."""
    still_open = aborted_transactions(log, start, end, []).open
    ranges = [np.empty((0, 2), np.int64)]
    for window in windows_from(log, min(still_open.values())) if still_open else ():
        table = window.table
        kind = table[:, HeaderColumn.ATTRIBUTES] & (layout.ATTRIBUTE_TRANSACTIONAL | layout.ATTRIBUTE_CONTROL)
        rows = np.zeros(len(table), bool)
        for producer, first in still_open.items():
            rows |= (table[:, HeaderColumn.PRODUCER_ID] == producer) & (table[:, HeaderColumn.BASE_OFFSET] >= first)
        ranges.append(
            table[rows & (kind == layout.ATTRIBUTE_TRANSACTIONAL)][
                :, [HeaderColumn.BASE_OFFSET, HeaderColumn.LAST_OFFSET]
            ]
        )
    return np.concatenate(ranges)


@dataclass(frozen=True, slots=True)
class Entry:
    """A decoded record.

    Attributes:
        offset: Offset of the record.
        key: Decoded key; None if it cannot be decoded.
        value: Decoded value; None for a tombstone, and if there is an error.
        error: Why key or value cannot be decoded, or None.
    """

    offset: int
    key: Any
    value: Any
    error: str | None = None

    @property
    def is_tombstone(self) -> bool:
        return self.value is None and self.error is None

    def source_columns(self, partition: int) -> dict[str, Any]:
        """Return the columns that tell from which record a row comes."""
        return {
            "source_partition": partition, "source_offset": self.offset, "deleted": self.is_tombstone,
            "error": self.error,
        }  # fmt: skip


def latest_entries(entries: Iterable[Entry]) -> list[Entry]:
    """Return the last record of each key, in the order of the log and without tombstones, as compaction would."""
    last: dict[object, Entry] = {}
    for entry in entries:
        key = entry.offset if entry.key is None else entry.key
        last.pop(key, None)
        if not entry.is_tombstone:
            last[key] = entry
    return list(last.values())
