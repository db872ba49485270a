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
from kafkalog_spark.log.check.index_check import OffsetIndexCheck, TimeIndexCheck
from kafkalog_spark.log.read.last_stable_offset import last_stable_offset
from kafkalog_spark.log.read.partition_log import PartitionLocation, PartitionLog, leader_epochs, offset_checkpoint
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.repair.damaged_segment import Damage, end_of, stretches
from kafkalog_spark.log.tables.table import left_overs, segment_size, timestamp_us

_TRANSIENT = {names.DELETED_SUFFIX: "deleted", names.CLEANED_SUFFIX: "cleaned", names.SWAP_SUFFIX: "swap"}


def segment_row(file: SegmentFile, log: PartitionLog) -> dict[str, Any]:
    """The row of `log`'s open segment. Raises FileNotFoundError when an index goes away meanwhile, NotALogDirectory."""
    files = file.files
    # read before the batches: a live index may tell of batches that come after them
    offsets = OffsetIndexCheck(_index(file, files.offset_index, offset_index.ENTRY_SIZE), file.base_offset)
    times = TimeIndexCheck(_index(file, files.time_index, time_index.ENTRY_SIZE), file.base_offset)
    offsets_wrong, times_wrong = len(offsets.faults), len(times.faults)
    batches = damaged = position = 0
    records: int | None = 0
    error: str | None = None
    first_timestamp = max_timestamp = NO_TIMESTAMP
    end_offset = file.base_offset
    for part in stretches(file, 0, log.recovery_point):
        if isinstance(part, Damage):
            damaged += part.size
            error = error or part.error
            offsets.lost()
            continue
        table = part.table
        offsets_wrong += sum(1 for _ in offsets.take(table, end_offset - 1, int(table[0, H.POSITION])))
        if not damaged:  # what lies in damage may have been the latest record
            times_wrong += sum(1 for _ in times.take(table))
        if not batches:
            first_timestamp = int(table[0, H.BASE_TIMESTAMP])
        batches += len(table)
        if records is not None:
            records = None if (table[:, H.COUNT] < 0).any() else records + int(table[:, H.COUNT].sum())
        max_timestamp = max(max_timestamp, int(table[:, H.MAX_TIMESTAMP].max()))
        end_offset, position = int(table[-1, H.LAST_OFFSET]) + 1, end_of(table[-1])
    if not damaged and not file.is_last:  # as kafkalog-check: of a live or damaged one nobody knows
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
        "aborted_transactions": _aborted(file),
        "has_snapshot": any(at == file.base_offset for at, _ in names.producer_snapshots(log.names)),
        "damaged_bytes": damaged,
        "error": error,
    }


def left_over_rows(log: PartitionLog) -> Iterator[dict[str, Any]]:
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
    try:
        return None if file.files.transaction_index is None else len(file.aborted())
    except FileNotFoundError:
        raise
    except (CorruptIndex, OSError):
        return None


def _index(file: SegmentFile, name: str | None, entry_size: int) -> bytes:
    """An index's bytes; none of one that is not there or cannot be read: it is a hint (kafkalog-check says why)."""
    try:
        return file.read_index(name, entry_size)
    except FileNotFoundError:
        raise
    except OSError:
        return b""


# The table `partitions`: where each begins and ends, and what the files alongside its log say.


def partition_row(place: PartitionLocation) -> dict[str, Any]:
    """The row of one partition. Raises NotALogDirectory for one that is gone or cannot be read."""
    parent, tp = place.log_dir, (place.topic, place.partition)
    row: dict[str, Any] = {}
    if place.has_checkpoints:
        row = {
            "high_watermark": offset_checkpoint(place.store, parent, HIGH_WATERMARK_CHECKPOINT).get(tp),
            "recovery_point": offset_checkpoint(place.store, parent, RECOVERY_POINT_CHECKPOINT).get(tp),
            "clean_shutdown": names.CLEAN_SHUTDOWN_FILE in place.store.list(parent).names,
        }
    log = place.open(pass_over_damage=True)
    topic_id = place.topic_id()
    row |= {
        "topic": place.topic,
        "partition": place.partition,
        "directory": place.directory,
        "topic_id": None if topic_id is None else uuid_to_text(topic_id),
        "segments": len(log.segments),
        "size": sum(segment_size(log, index) for index in range(len(log.segments))),
        "log_start_offset": log.log_start_offset,
        "leader_epochs": [entry._asdict() for entry in leader_epochs(place.store, place.directory)],
        "log_end_offset": log.log_end_offset,
    }
    try:
        strict = place.open()  # damage hides the LSO: a marker may lie in it
        if strict.log_end_offset == row["log_end_offset"]:
            row["last_stable_offset"] = last_stable_offset(strict)
    except KafkalogError as error:
        row["error"] = str(error)
    return row
