"""Input of an open log: the contents of its directory after loading, or after making a new one."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from kafkalog_broker.storage.partition.leader_epochs import LeaderEpochs
from kafkalog_broker.storage.partition.producer_state import ProducerState
from kafkalog_spark.format import names
from kafkalog_spark.format.atomic_file import FILE_MODE
from kafkalog_spark.format.partition_metadata import (
    PARTITION_METADATA_FILE,
    PartitionMetadata,
    write_partition_metadata,
)
from kafkalog_spark.log.write.segment_recovery import RecoveredSegment


class LogIdentity(NamedTuple):
    """Partition and topic id of a log."""

    topic: str
    partition: int
    topic_id: UUID


@dataclass(slots=True, kw_only=True)
class LoadedLog:
    """A log that can be opened: its directory holds the segments `base_offsets`, whole, with their indexes.

    recovered: the segments that were checked, and what was found. recovery_point: the log is flushed up to there.
    """

    directory: Path
    base_offsets: list[int]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    epochs: LeaderEpochs
    producers: ProducerState
    recovered: list[RecoveredSegment] = field(default_factory=list)

    @property
    def truncated_bytes(self) -> int:
        return sum(segment.truncated_bytes for segment in self.recovered)


def create_log_files(
    directory: Path, topic_id: UUID, *, log_start_offset: int, leader_epoch: int, sync: bool
) -> LoadedLog:
    """Make the files of an empty log in `directory`, its indexes trimmed as in a log that was closed. sync: topic id
    and leader epoch are on disk on return. Raises FileExistsError when there is a segment, OSError."""
    write_partition_metadata(directory / PARTITION_METADATA_FILE, PartitionMetadata(topic_id), sync=sync)
    epochs = LeaderEpochs(directory)
    epochs.assign(leader_epoch, log_start_offset, sync=sync)
    segment = os.path.join(directory, names.segment_name(log_start_offset))
    for suffix in (names.LOG_SUFFIX, names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX):
        os.close(os.open(segment + suffix, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
    return LoadedLog(
        directory=directory, base_offsets=[log_start_offset], log_start_offset=log_start_offset,
        log_end_offset=log_start_offset, recovery_point=log_start_offset, epochs=epochs,
        producers=ProducerState(log_start_offset),
    )  # fmt: skip
