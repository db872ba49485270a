"""What a log is opened from: what its directory holds after loading, and what recovery found in each segment."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from kafkalog_broker.storage.partition.leader_epochs import LeaderEpochs
from kafkalog_broker.storage.partition.log_segment import ActiveSegment
from kafkalog_broker.storage.partition.producer_state import ProducerState
from kafkalog_spark.format.atomic_file import DIRECTORY_MODE
from kafkalog_spark.format.partition_metadata import (
    PARTITION_METADATA_FILE,
    PartitionMetadata,
    write_partition_metadata,
)
from kafkalog_spark.log.write.segment_recovery import RecoveredSegment


class LogIdentity(NamedTuple):
    """Which partition a log is of."""

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


# The files of a log that is new.


def create_log_files(
    directory: Path, topic_id: UUID, *, log_start_offset: int, leader_epoch: int, max_index_size: int, sync: bool
) -> LoadedLog:
    """Make `directory` and the files of an empty log in it. As Log.create."""
    directory.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
    write_partition_metadata(directory / PARTITION_METADATA_FILE, PartitionMetadata(topic_id), sync=sync)
    epochs = LeaderEpochs(directory)
    epochs.assign(leader_epoch, log_start_offset, sync=sync)
    ActiveSegment.create(directory, log_start_offset, max_index_size=max_index_size).close()
    return LoadedLog(
        directory=directory, base_offsets=[log_start_offset], log_start_offset=log_start_offset,
        log_end_offset=log_start_offset, recovery_point=log_start_offset, epochs=epochs,
        producers=ProducerState(log_start_offset),
    )  # fmt: skip
