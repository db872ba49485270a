"""What a log is opened from: what its directory holds after loading, and what recovery found in each segment."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from kafkalog_broker.storage.partition.leader_epochs import LeaderEpochs
from kafkalog_broker.storage.partition.producer_state import ProducerState
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
