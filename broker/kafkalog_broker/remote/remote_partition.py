"""State of one partition with remote segments, and totals of all partitions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from kafkalog_broker.remote.copy_candidates import segments_to_copy
from kafkalog_broker.remote.remote_log_metadata_cache import RemoteLogMetadataCache
from kafkalog_broker.storage.partition.log import Log


@dataclass(slots=True)
class RemoteCounts:
    """Totals since the start of the broker (Kafka's `RemoteStorageMetrics` and `BrokerTopicMetrics`)."""

    copy_requests: int = 0
    copy_errors: int = 0
    copy_bytes: int = 0
    fetch_requests: int = 0
    fetch_errors: int = 0
    fetch_bytes: int = 0
    delete_requests: int = 0
    delete_errors: int = 0


class Lag(NamedTuple):
    """Number of segments that are to be copied or deleted, and their total size in bytes."""

    segments: int
    size: int


NO_LAG = Lag(0, 0)


@dataclass(slots=True, eq=False)
class RemotePartition:
    """A partition that has remote segments, or whose topic has remote storage enabled.

    Attributes:
        remote: Metadata of its remote segments.
        log: None once the topic is deleted.
        copying: IDs of the segments that are being copied.
        failures: Number of failed copies since the last successful one.
        copies_are_cancelled: True once the store returned too large custom metadata; never reset.
        next_try_ms: Earliest time of the next copy after a failure, by the monotonic clock.
        copy_lag: Segments that are to be copied.
        delete_lag: Segments that are to be deleted.
        reported_future_segment: ID of the segment whose timestamp in the future was logged last.
    """

    remote: RemoteLogMetadataCache
    log: Log | None = None
    copying: set[UUID] = field(default_factory=set)
    failures: int = 0
    copies_are_cancelled: bool = False
    next_try_ms: int = 0
    copy_lag: Lag = NO_LAG
    delete_lag: Lag = NO_LAG
    reported_future_segment: UUID | None = None

    def update_copy_lag(self, log: Log) -> bool:
        """Update `copy_lag`, and return whether any segment is to be copied."""
        sizes = [segment.size for segment, _ in segments_to_copy(log)]
        self.copy_lag = Lag(len(sizes), sum(sizes))
        return bool(sizes)
