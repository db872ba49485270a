"""Choice of the remote segments that retention deletes (Kafka's `RLMExpirationTask`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.remote.remote_log_metadata_cache import RemoteLogMetadataCache
from kafkalog_broker.storage.partition.retention import FAR_AHEAD_MS
from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.log.tiered.lineage import exclusion_reason, without_empty_epochs
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment


@dataclass(slots=True)
class ExpiredSegments:
    """Segments to delete.

    Attributes:
        segments: In the order of their deletion.
        log_start_offset: Log start offset after the deletion; None if it does not move.
        from_future: First remaining segment, if retention.ms keeps it because of a timestamp far in the future.
    """

    segments: list[RemoteSegment] = field(default_factory=list)
    log_start_offset: int | None = None
    from_future: RemoteSegment | None = None


def expired_segments(
    remote: RemoteLogMetadataCache, config: LogConfig, epochs: Sequence[EpochEntry], now_ms: int, *,
    log_start_offset: int, log_end_offset: int, only_local_bytes: int,
) -> ExpiredSegments:  # fmt: skip
    """Return the segments to delete now. The caller moves the log start offset before it deletes the first one.

    As in Kafka, a segment expires if it is below the log start offset, if its newest record is older than retention.ms,
    or if the local and the remote log together exceed retention.bytes. Segments expire from the oldest up to the first
    one for which no reason applies. Segments whose epochs all precede the first epoch of the log expire too; other
    segments outside the lineage of the log are kept.

    Args:
        epochs: Leader epochs of the log.
        only_local_bytes: Size of the local segments that were not copied.
    """
    lineage = without_empty_epochs(epochs)
    expired = ExpiredSegments()
    if not lineage:
        return expired
    of_lineage = {segment.segment_id: segment for entry in lineage for segment in remote.of_epoch(entry.epoch)}

    def is_in_lineage(segment: RemoteSegment) -> bool:
        return exclusion_reason(segment, lineage, log_end_offset) is None

    surplus = 0  # bytes above retention.bytes (buildRetentionSizeData)
    if 0 <= config.retention_bytes < only_local_bytes + remote.finished_bytes:  # an upper bound
        copied = sum(segment.size for segment in of_lineage.values() if is_in_lineage(segment))
        surplus = max(only_local_bytes + copied - config.retention_bytes, 0)
    for segment in of_lineage.values():
        if segment.end_offset < log_start_offset and segment.last_epoch <= lineage[0].epoch:
            surplus -= segment.size
            expired.segments.append(segment)
            continue
        if not is_in_lineage(segment):
            continue
        is_old = config.retention_ms >= 0 and segment.max_timestamp <= now_ms - config.retention_ms
        if not (is_old or 0 < segment.size <= surplus):
            if config.retention_ms >= 0 and segment.max_timestamp > now_ms + FAR_AHEAD_MS:
                expired.from_future = segment
            break
        surplus -= segment.size
        expired.segments.append(segment)
        # Segments of several leaders overlap: one that begins later may end earlier (KAFKA-16890).
        expired.log_start_offset = max(segment.until, expired.log_start_offset or 0)
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
