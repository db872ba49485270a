"""The table `segments`: what each segment holds, and what its indexes are worth."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from kafkalog_spark.errors import CorruptIndex, KafkalogError
from kafkalog_spark.format import names, offset_index, time_index
from kafkalog_spark.format.checkpoint import HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from kafkalog_spark.format.layout import NO_TIMESTAMP, H
from kafkalog_spark.format.partition_metadata import uuid_to_text
from kafkalog_spark.format.transaction_index import ENTRY_SIZE as TRANSACTION_ENTRY_SIZE
from kafkalog_spark.format.transaction_index import parse_transaction_index
from kafkalog_spark.log.check.index_check import OffsetIndexCheck, TimeIndexCheck
from kafkalog_spark.log.read.last_stable_offset import last_stable_offset
from kafkalog_spark.log.read.partition_log import PartitionLocation, PartitionLog, leader_epochs, offset_checkpoint
from kafkalog_spark.log.read.segment_file import SegmentFile, Window
from kafkalog_spark.log.repair.damaged_segment import Damage, stretches
from kafkalog_spark.log.tables.table import timestamp_us
from kafkalog_spark.log.tables.table_query import left_overs, segment_size

_TRANSIENT = {names.DELETED_SUFFIX: "deleted", names.CLEANED_SUFFIX: "cleaned", names.SWAP_SUFFIX: "swap"}


def segment_row(file: SegmentFile, log: PartitionLog) -> dict[str, Any]:
    """The row of `log`'s open segment. Raises FileNotFoundError when an index goes away meanwhile, NotALogDirectory."""
    walk = _Walk(file)
    for part in stretches(file, 0, log.recovery_point):
        walk.take(part)
    return {
        "topic": log.topic,
        "partition": log.partition,
        "segment": file.base_offset,
        "state": "live",
        "file": file.path,
        "size": file.size,
        "closed": not file.is_last,
        "has_snapshot": any(at == file.base_offset for at, _ in names.producer_snapshots(log.names)),
        "aborted_transactions": _aborted(file),
        **walk.row(),
    }


def left_over_rows(log: PartitionLog) -> Iterator[dict[str, Any]]:
    """The .log files of a partition's directory that are not part of its log."""
    for name, file in left_overs(log).items():
        path = os.path.join(log.directory, name)
        facts = log.facts.get(name)
        try:
            size = os.stat(path).st_size if facts is None else facts.size
        except FileNotFoundError:
            continue  # its time had come
        # a plain segment that is not part of the log: a .swap takes its place
        state = "deleted" if file.transient_suffix is None else _TRANSIENT[file.transient_suffix]
        row = {"topic": log.topic, "partition": log.partition, "segment": file.base_offset}
        yield row | {"state": state, "file": path, "size": size}


def _aborted(file: SegmentFile) -> int | None:
    name = file.files.transaction_index
    if name is None:
        return None
    try:
        return len(parse_transaction_index(file.read_index(name, TRANSACTION_ENTRY_SIZE), file.base_offset))
    except FileNotFoundError:
        raise
    except (CorruptIndex, OSError):
        return None


def _index(file: SegmentFile, name: str | None, entry_size: int) -> bytes:
    """An index's bytes; none of one that is not there or cannot be read: it is a hint (kafkalog-check says why)."""
    try:
        return b"" if name is None else file.read_index(name, entry_size)
    except FileNotFoundError:
        raise
    except OSError:
        return b""


class _Walk:
    """Walk over a segment's batches, and comparison of its indexes with them."""

    def __init__(self, file: SegmentFile) -> None:
        self._file = file
        # read before the batches: a live index may tell of batches that come after them
        data = _index(file, file.files.offset_index, offset_index.ENTRY_SIZE)
        self._offsets = OffsetIndexCheck(data, file.base_offset)
        data = _index(file, file.files.time_index, time_index.ENTRY_SIZE)
        self._times = TimeIndexCheck(data, file.base_offset)
        self._offsets_wrong, self._times_wrong = len(self._offsets.faults), len(self._times.faults)
        self._batches = self._damaged = self._position = 0
        self._records: int | None = 0
        self._error: str | None = None
        self._first_timestamp = self._max_timestamp = NO_TIMESTAMP
        self._end_offset = file.base_offset

    def take(self, part: Window | Damage) -> None:
        if isinstance(part, Damage):
            self._damaged += part.size
            self._error = self._error or part.error
            self._offsets.lost()
            return
        table = part.table
        begin = int(table[0, H.POSITION])
        self._offsets_wrong += len(list(self._offsets.take(table, self._end_offset - 1, begin)))
        if not self._damaged:  # what lies in damage may have been the latest record
            self._times_wrong += len(list(self._times.take(table)))
        if not self._batches:
            self._first_timestamp = int(table[0, H.BASE_TIMESTAMP])
        self._batches += len(table)
        if self._records is not None:
            self._records = None if (table[:, H.COUNT] < 0).any() else self._records + int(table[:, H.COUNT].sum())
        self._max_timestamp = max(self._max_timestamp, int(table[:, H.MAX_TIMESTAMP].max()))
        self._end_offset = int(table[-1, H.LAST_OFFSET]) + 1
        self._position = int(table[-1, H.POSITION] + table[-1, H.SIZE])

    def row(self) -> dict[str, Any]:
        """The columns that it found out, after the last stretch."""
        if not self._damaged and not self._file.is_last:  # as kafkalog-check: of a live or damaged one nobody knows
            self._offsets_wrong += len(list(self._offsets.finish(self._position)))
            self._times_wrong += len(list(self._times.finish()))
        files = self._file.files
        return {
            "end_offset": self._end_offset,
            "batches": self._batches,
            "records": self._records,
            "first_timestamp": timestamp_us(self._first_timestamp),
            "max_timestamp": timestamp_us(self._max_timestamp),
            "offset_index_entries": files.offset_index and self._offsets.entries,
            "offset_index_wrong": files.offset_index and self._offsets_wrong,
            "time_index_entries": files.time_index and self._times.entries,
            "time_index_wrong": files.time_index and self._times_wrong,
            "damaged_bytes": self._damaged,
            "error": self._error,
        }


# The table `partitions`: where each begins and ends, and what the files alongside its log say.


def partition_row(place: PartitionLocation) -> dict[str, Any]:
    """The row of one partition. Raises NotALogDirectory for one that is gone or cannot be read."""
    parent, tp = place.log_dir, (place.topic, place.partition)
    of_log_dir: dict[str, Any] = {"high_watermark": None, "recovery_point": None, "clean_shutdown": None}
    if place.has_checkpoints:
        of_log_dir = {
            "high_watermark": offset_checkpoint(place.store, parent, HIGH_WATERMARK_CHECKPOINT).get(tp),
            "recovery_point": offset_checkpoint(place.store, parent, RECOVERY_POINT_CHECKPOINT).get(tp),
            "clean_shutdown": names.CLEAN_SHUTDOWN_FILE in place.store.list(parent).names,
        }
    log = place.open(pass_over_damage=True)
    topic_id = place.topic_id()
    return {
        "topic": place.topic,
        "partition": place.partition,
        "directory": place.directory,
        "topic_id": None if topic_id is None else uuid_to_text(topic_id),
        "segments": len(log.segments),
        "size": sum(segment_size(log, index) for index in range(len(log.segments))),
        "log_start_offset": log.log_start_offset,
        "leader_epochs": [entry._asdict() for entry in leader_epochs(place.store, place.directory)],
        **of_log_dir,
        **_ends(place, log),
    }


def _ends(place: PartitionLocation, log: PartitionLog) -> dict[str, Any]:
    """Log end offset and LSO. Damage hides the second: a marker may lie in it."""
    row: dict[str, Any] = {"log_end_offset": log.log_end_offset, "last_stable_offset": None, "error": None}
    try:
        strict = place.open()
        if strict.log_end_offset == row["log_end_offset"]:
            row["last_stable_offset"] = last_stable_offset(strict)
    except KafkalogError as error:
        row["error"] = str(error)
    return row
