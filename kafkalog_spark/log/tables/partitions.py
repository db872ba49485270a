"""Row of the table `partitions`: offsets of a partition, and the content of its checkpoints and small files."""

from __future__ import annotations

from typing import Any

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.checkpoint import HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from kafkalog_spark.format.names import CLEAN_SHUTDOWN_FILE
from kafkalog_spark.format.partition_metadata import uuid_to_text
from kafkalog_spark.log.read.last_stable_offset import last_stable_offset
from kafkalog_spark.log.read.partition_log import PartitionLocation
from kafkalog_spark.log.read.state_files import Checkpoints, leader_epochs_or_empty
from kafkalog_spark.log.tables.open_unit import Batches, OpenUnit
from kafkalog_spark.log.tables.units import segment_size


def partition_of_unit(unit: OpenUnit) -> Batches:
    """Return the row of a partition. Raises NotALogDirectory if it was deleted or cannot be read."""
    location = unit.location
    closed_cleanly = location.has_checkpoints and unit.task.once_per_log_dir(location, _is_cleanly_closed)
    return unit.batches([_row(location, unit.checkpoints, closed_cleanly=closed_cleanly)])


def _is_cleanly_closed(location: PartitionLocation) -> bool:
    return CLEAN_SHUTDOWN_FILE in location.store.list(location.log_dir).names


def _row(location: PartitionLocation, checkpoints: Checkpoints, *, closed_cleanly: bool) -> dict[str, Any]:
    tp = location.topic, location.partition
    row: dict[str, Any] = {}
    if location.has_checkpoints:
        store, log_dir = location.store, location.log_dir
        row = {
            "high_watermark": checkpoints.read(store, log_dir, HIGH_WATERMARK_CHECKPOINT).get(tp),
            "recovery_point": checkpoints.read(store, log_dir, RECOVERY_POINT_CHECKPOINT).get(tp),
            "clean_shutdown": closed_cleanly,
        }
    log = location.open(pass_over_damage=True, checkpoints=checkpoints)
    topic_id = location.topic_id()
    row |= {
        "topic": location.topic,
        "partition": location.partition,
        "directory": location.directory,
        "topic_id": None if topic_id is None else uuid_to_text(topic_id),
        "segments": len(log.segments),
        "size": sum(segment_size(log, index) for index in range(len(log.segments))),
        "log_start_offset": log.log_start_offset,
        "leader_epochs": [entry._asdict() for entry in leader_epochs_or_empty(location.store, location.directory)],
        "log_end_offset": log.log_end_offset,
    }
    try:
        # The log opened above passes over damage, which may hide the marker of a transaction. The LSO is only right
        # without damage.
        undamaged_log = location.open(checkpoints=checkpoints)
        if undamaged_log.log_end_offset == row["log_end_offset"]:  # otherwise the log has changed meanwhile
            row["last_stable_offset"] = last_stable_offset(undamaged_log)
    except KafkalogError as error:
        row["error"] = str(error)
    return row
