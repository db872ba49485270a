"""Log that is ready to be opened: the result of `load_log` or `create_log_files`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from kafkalog_broker.storage.partition.leader_epochs import LeaderEpochs
from kafkalog_broker.storage.partition.producer_state import ProducerState
from kafkalog_spark.format import names
from kafkalog_spark.format.atomic_file import replace_files_in
from kafkalog_spark.format.checkpoint import LEADER_EPOCH_CHECKPOINT, EpochEntry, format_leader_epochs
from kafkalog_spark.format.partition_metadata import PARTITION_METADATA_FILE, format_partition_metadata
from kafkalog_spark.format.regular_file import FILE_MODE
from kafkalog_spark.log.write.segment_recovery import RecoveredSegment


@dataclass(slots=True, kw_only=True)
class LoadedLog:
    """Log that is ready to be opened: its segments are whole and have their indexes.

    Attributes:
        base_offsets: Base offsets of the segments in `directory`, ascending.
        recovery_point: Offset below which the log is flushed.
        recovered: Segments that were checked and repaired while loading.
        is_synced: True if every file and every name in the directory is on disk.
        unsynced_snapshots: Producer snapshots whose bytes may not be on disk yet.
    """

    directory: Path
    base_offsets: list[int]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    epochs: LeaderEpochs
    producers: ProducerState
    recovered: Sequence[RecoveredSegment] = ()
    is_synced: bool = False
    unsynced_snapshots: Sequence[Path] = ()


def create_log_files(directory: Path, topic_id: UUID, *, log_start_offset: int, leader_epoch: int) -> LoadedLog:
    """Create the files of an empty log in `directory`, with trimmed indexes, and sync them to disk.

    The leader epoch must be on disk before the first record, because a log without its lineage could no longer claim
    its remote segments (Kafka: `LeaderEpochFileCache.assign`, `PartitionMetadataFile`).

    Raises:
        FileExistsError: If the directory has the segment already.
        OSError: If a file cannot be written or synced.
    """
    segment = os.path.join(directory, names.segment_name(log_start_offset))
    for suffix in (names.LOG_SUFFIX, names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX):
        os.close(os.open(segment + suffix, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
    epochs = [EpochEntry(leader_epoch, log_start_offset)]
    replace_files_in(directory, {
        PARTITION_METADATA_FILE: format_partition_metadata(topic_id),
        LEADER_EPOCH_CHECKPOINT: format_leader_epochs(epochs),
    })  # fmt: skip
    return LoadedLog(
        directory=directory, base_offsets=[log_start_offset], log_start_offset=log_start_offset,
        log_end_offset=log_start_offset, recovery_point=log_start_offset, epochs=LeaderEpochs(directory, epochs),
        producers=ProducerState(log_start_offset), is_synced=True,
    )  # fmt: skip
