"""Which remote segments go, and where the log begins then (RemoteLogManager.RLMExpirationTask): plain decisions.

As in Kafka the reasons are, in this order: the segment lies below the log start offset, its newest record is older than
retention.ms, the log, remote and local together, is larger than retention.bytes. Segments go from the oldest on, to the
first that stays. Segments of epochs that lie before the log's first go too; others that are not of the log stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.remote.remote_log_metadata_manager import RemoteLogMetadataCache
from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.log.tiered.lineage import why_not_of_the_log, without_empty_epochs
from kafkalog_spark.log.tiered.remote_names import RemoteSegment


@dataclass(slots=True)
class ExpiredSegments:
    """segments: in the order in which they go. log_start_offset: of the log without them; None where it stays."""

    segments: list[RemoteSegment] = field(default_factory=list)
    log_start_offset: int | None = None


def expired_segments(
    remote: RemoteLogMetadataCache, config: LogConfig, epochs: Sequence[EpochEntry], now_ms: int, *,
    log_start_offset: int, log_end_offset: int, only_local_bytes: int,
) -> ExpiredSegments:  # fmt: skip
    """The segments to delete now; the caller moves the log start offset before the first one goes. epochs: the log's.
    only_local_bytes: of segments that were not copied."""
    lineage = without_empty_epochs(epochs)
    expired = ExpiredSegments()
    if not lineage:
        return expired
    of_lineage = {segment.segment_id: segment for entry in lineage for segment in remote.of_epoch(entry.epoch)}

    def is_of_the_log(segment: RemoteSegment) -> bool:
        return why_not_of_the_log(segment, lineage, log_end_offset) is None

    surplus = 0  # bytes above retention.bytes (buildRetentionSizeData)
    if 0 <= config.retention_bytes < only_local_bytes + remote.finished_bytes:  # all of them, of the log or not
        copied = sum(segment.size for segment in of_lineage.values() if is_of_the_log(segment))
        surplus = max(only_local_bytes + copied - config.retention_bytes, 0)
    for segment in of_lineage.values():
        if segment.end_offset < log_start_offset and segment.last_epoch <= lineage[0].epoch:
            surplus -= segment.size
            expired.segments.append(segment)
            continue
        if not is_of_the_log(segment):
            continue
        is_old = config.retention_ms >= 0 and segment.max_timestamp <= now_ms - config.retention_ms
        if not (is_old or 0 < segment.size <= surplus):
            break
        surplus -= segment.size
        expired.segments.append(segment)
        expired.log_start_offset = segment.until
    chosen = {segment.segment_id for segment in expired.segments}
    earliest = epochs[0].epoch
    for epoch in remote.epochs:
        if epoch >= earliest:
            break
        for segment in remote.of_epoch(epoch):
            if segment.last_epoch < earliest and segment.segment_id not in chosen:
                chosen.add(segment.segment_id)
                expired.segments.append(segment)
    return expired
