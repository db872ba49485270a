"""The files of a log that is new."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from kafkalog_broker.storage.partition.leader_epochs import LeaderEpochs
from kafkalog_broker.storage.partition.loaded_log import LoadedLog
from kafkalog_broker.storage.partition.log_segment import ActiveSegment
from kafkalog_broker.storage.partition.producer_state import ProducerState
from kafkalog_spark.log.format.durable import DIRECTORY_MODE
from kafkalog_spark.log.format.partition_metadata import (
    PARTITION_METADATA_FILE,
    PartitionMetadata,
    write_partition_metadata,
)


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
