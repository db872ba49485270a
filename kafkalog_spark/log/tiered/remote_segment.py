"""One remote log segment as every source of metadata describes it: manifests, `__remote_log_metadata`, names.

Kafka's RemoteLogSegmentMetadata, TopicIdPartition and RemoteLogSegmentId. Plain data.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import NamedTuple

from kafkalog_spark.log.format.checkpoint import EpochEntry
from kafkalog_spark.log.format.names import segment_name
from kafkalog_spark.log.format.partition_metadata import uuid_to_text


class TopicIdPartition(NamedTuple):
    """A partition of a topic that may share its name with one created before or after it."""

    topic: str
    topic_id: uuid.UUID
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} (topic id {uuid_to_text(self.topic_id)})"


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """What is known of a segment that was copied to remote storage.

    start_offset: its base offset. end_offset: the last one, **inclusive**: the next segment's base offset - 1, also
    where its last records are control records. leader_epochs: those of its records, by epoch; the first begins at
    start_offset, the others where they begin in the log. size: bytes of the .log file.
    max_timestamp, event_timestamp: ms. custom_metadata: what the plugin wanted to be kept (`custom_metadata.py`).
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
        """Its files' names without suffix: start offset and id, in all layouts."""
        return f"{segment_name(self.start_offset)}-{uuid_to_text(self.segment_id)}"

    @property
    def until(self) -> int:
        """The offset after its last one."""
        return self.end_offset + 1

    @property
    def last_epoch(self) -> int:
        """The leader epoch of its last record; -1 when it has none."""
        return self.leader_epochs[-1].epoch if self.leader_epochs else -1

    def __str__(self) -> str:
        return f"{self.partition.topic}-{self.partition.partition} {self.name} [{self.start_offset}, {self.end_offset}]"
