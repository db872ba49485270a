"""Rows of the table `segments`: the content of each segment, and the number of wrong index entries."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from kafkalog_spark.errors import CorruptIndex
from kafkalog_spark.format import names, offset_index, time_index
from kafkalog_spark.format.layout import NO_TIMESTAMP, HeaderColumn
from kafkalog_spark.log.check.index_check import OffsetIndexCheck, TimeIndexCheck
from kafkalog_spark.log.read.header_windows import batch_end
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.repair.damaged_segment import Damage, windows_and_damage
from kafkalog_spark.log.tables.open_unit import Batches, OpenUnit
from kafkalog_spark.log.tables.timestamps import timestamp_us
from kafkalog_spark.log.tables.units import find_left_overs

_TRANSIENT_STATES = {names.DELETED_SUFFIX: "deleted", names.CLEANED_SUFFIX: "cleaned", names.SWAP_SUFFIX: "swap"}


def segments_of_unit(unit: OpenUnit) -> Batches:
    """Return the row of a segment; for a unit without one, the rows of the partition's left-over files."""
    log = unit.log
    if unit.unit.segment is None:
        return unit.batches(_left_over_rows(log))
    with unit.open_segment() as file:
        return unit.batches([_segment_row(file, log)])


def _segment_row(file: SegmentFile, log: PartitionLog) -> dict[str, Any]:
    """Return the row of an open segment of `log`.

    Raises:
        FileNotFoundError: If an index is removed during the read.
        NotALogDirectory: If the segment cannot be read.
    """
    files = file.files
    # Read the indexes before the batches: later, they might have entries for batches that were appended since.
    offsets = OffsetIndexCheck(_read_index(file, files.offset_index, offset_index.ENTRY_SIZE), file.base_offset)
    times = TimeIndexCheck(_read_index(file, files.time_index, time_index.ENTRY_SIZE), file.base_offset)
    offsets_wrong, times_wrong = len(offsets.faults), len(times.faults)
    batches = damaged = position = 0
    records: int | None = 0
    error: str | None = None
    first_timestamp = max_timestamp = NO_TIMESTAMP
    end_offset = file.base_offset
    for part in windows_and_damage(file, 0, log.recovery_point):
        if isinstance(part, Damage):
            damaged += part.size
            error = error or part.error
            offsets.skip_damage()
            continue
        table = part.table
        begin = int(table[0, HeaderColumn.POSITION])
        offsets_wrong += sum(1 for _ in offsets.check_entries(table, end_offset - 1, begin))
        if not damaged:  # a damaged batch may have had the largest timestamp
            times_wrong += sum(1 for _ in times.check_entries(table))
        if not batches:
            first_timestamp = int(table[0, HeaderColumn.BASE_TIMESTAMP])
        batches += len(table)
        if records is not None:
            records = (
                None if (table[:, HeaderColumn.COUNT] < 0).any() else records + int(table[:, HeaderColumn.COUNT].sum())
            )
        max_timestamp = max(max_timestamp, int(table[:, HeaderColumn.MAX_TIMESTAMP].max()))
        end_offset, position = int(table[-1, HeaderColumn.LAST_OFFSET]) + 1, batch_end(table[-1])
    # As in kafkalog-check: the end of a live or damaged segment is unknown, so its last entries are not checked.
    if not damaged and not file.is_last:
        offsets_wrong += sum(1 for _ in offsets.finish(position))
        times_wrong += sum(1 for _ in times.finish())
    return {
        "topic": log.topic,
        "partition": log.partition,
        "segment": file.base_offset,
        "state": "live",
        "file": file.path,
        "size": file.size,
        "closed": not file.is_last,
        "end_offset": end_offset,
        "batches": batches,
        "records": records,
        "first_timestamp": timestamp_us(first_timestamp),
        "max_timestamp": timestamp_us(max_timestamp),
        "offset_index_entries": files.offset_index and offsets.entries,
        "offset_index_wrong": files.offset_index and offsets_wrong,
        "time_index_entries": files.time_index and times.entries,
        "time_index_wrong": files.time_index and times_wrong,
        "aborted_transactions": _count_aborts(file),
        "has_snapshot": any(at == file.base_offset for at, _ in names.producer_snapshots(log.names)),
        "damaged_bytes": damaged,
        "error": error,
    }


def _left_over_rows(log: PartitionLog) -> Iterator[dict[str, Any]]:
    """Yield rows for the .log files in the directory that are not part of the log."""
    for name, file in find_left_overs(log).items():
        path = os.path.join(log.directory, name)
        facts = log.facts.get(name)
        try:
            size = os.stat(path).st_size if facts is None else facts.size
        except FileNotFoundError:
            continue  # deleted since it was listed
        # A segment without a suffix is not part of the log if a .swap file replaces it.
        state = "deleted" if file.transient_suffix is None else _TRANSIENT_STATES[file.transient_suffix]
        row = {"topic": log.topic, "partition": log.partition, "segment": file.base_offset}
        yield row | {"state": state, "file": path, "size": size}


def _count_aborts(file: SegmentFile) -> int | None:
    """Return the number of entries in the .txnindex, None if it is missing or cannot be read."""
    try:
        return None if file.files.transaction_index is None else len(file.aborted())
    except FileNotFoundError:
        raise
    except (CorruptIndex, OSError):
        return None


def _read_index(file: SegmentFile, name: str | None, entry_size: int) -> bytes:
    """Return the bytes of an index; none if it is missing or cannot be read, which kafkalog-check reports."""
    try:
        return file.read_index(name, entry_size)
    except FileNotFoundError:
        raise
    except OSError:
        return b""
