"""The table `partitions`: where each begins and ends, and what the files alongside its log say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.log.format import names
from kafkalog_spark.log.format.checkpoint import HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from kafkalog_spark.log.format.partition_metadata import uuid_to_text
from kafkalog_spark.log.read.last_stable_offset import last_stable_offset
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.partition_place import PartitionPlace
from kafkalog_spark.log.read.small_files import leader_epochs, offset_checkpoint
from kafkalog_spark.log.tables.arrow_rows import collected
from kafkalog_spark.log.tables.columns import PARTITIONS


def partition_rows(place: PartitionPlace, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
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
    row: dict[str, Any] = {
        "topic": place.topic,
        "partition": place.partition,
        "directory": place.directory,
        "topic_id": None if topic_id is None else uuid_to_text(topic_id),
        "segments": len(log.segments),
        "size": _size(log),
        "log_start_offset": log.log_start_offset,
        "leader_epochs": [entry._asdict() for entry in leader_epochs(place.store, place.directory)],
        **of_log_dir,
        **_ends(place, log),
    }
    yield from collected(PARTITIONS.schema(columns), [[row[name] for name in columns]])


def _size(log: PartitionLog) -> int:
    total = 0
    for index in range(len(log.segments)):
        try:
            total += log.size_of(index)
        except FileNotFoundError:
            continue  # retention was here
    return total


def _ends(place: PartitionPlace, log: PartitionLog) -> dict[str, Any]:
    """Ends and LSO. Damage hides the second: a marker may lie in it; of a log that passes over it, only the first."""
    row: dict[str, Any] = {"log_end_offset": log.log_end_offset, "last_stable_offset": None, "error": None}
    try:
        strict = place.open()
        if strict.log_end_offset == row["log_end_offset"]:
            row["last_stable_offset"] = last_stable_offset(strict)
    except KafkalogError as error:
        row["error"] = str(error)
    return row
