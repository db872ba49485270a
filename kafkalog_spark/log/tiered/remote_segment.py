"""Metadata of a remote segment, and the partition that it belongs to."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import NamedTuple

from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.format.names import segment_name
from kafkalog_spark.format.partition_metadata import uuid_to_text


class TopicIdPartition(NamedTuple):
    """A partition with its topic ID, which differs between a deleted topic and a new topic of the same name."""

    topic: str
    topic_id: uuid.UUID
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} (topic id {uuid_to_text(self.topic_id)})"


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """Metadata of a segment in remote storage (Kafka: RemoteLogSegmentMetadata).

    Manifests and `__remote_log_metadata` contain it.

    Attributes:
        end_offset: Last offset, **inclusive**: the base offset of the next segment minus 1, control records included.
        leader_epochs: Leader epochs of the records, in order. The start offset of the first entry is `start_offset`;
            the others are those of the log's leader-epoch checkpoint.
        size: Size of the .log file in bytes.
        max_timestamp: Largest record timestamp in ms, or -1 if it is unknown.
        event_timestamp: Time of the last event about the segment in ms.
        custom_metadata: Bytes that only the remote storage plugin interprets.
        transaction_index_empty: True if no transaction was aborted in the segment.
    """

    partition: TopicIdPartition
    segment_id: uuid.UUID
    start_offset: int
    end_offset: int
    leader_epochs: tuple[EpochEntry, ...]
    size: int
    max_timestamp: int
    broker_id: int
    event_timestamp: int
    custom_metadata: bytes | None = None
    transaction_index_empty: bool = False

    @property
    def name(self) -> str:
        """Name of the objects without suffix: start offset and segment ID, in the layouts AIVEN and LOCAL_TIERED."""
        return f"{segment_name(self.start_offset)}-{uuid_to_text(self.segment_id)}"

    @property
    def until(self) -> int:
        """Offset after the last one."""
        return self.end_offset + 1

    @property
    def last_epoch(self) -> int:
        """Leader epoch of the last record, or -1 if it is unknown."""
        return self.leader_epochs[-1].epoch if self.leader_epochs else -1

    def __str__(self) -> str:
        return f"{self.partition.topic}-{self.partition.partition} {self.name} [{self.start_offset}, {self.end_offset}]"
