"""Which remote segments go, and where the log begins then (RemoteLogManager.RLMExpirationTask): plain decisions.

As in Kafka the reasons are, in this order: the segment lies below the log start offset, its newest record is older than
retention.ms, the log, remote and local together, is larger than retention.bytes. Segments go from the oldest on, to the
first that stays. Segments of epochs that lie before the log's first go too; others that are not of the log stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.remote.remote_log_metadata_cache import RemoteLogMetadataCache
from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.log.tiered.lineage import why_not_of_the_log, without_empty_epochs
from kafkalog_spark.log.tiered.remote_names import RemoteSegment


@dataclass(slots=True)
class ExpiredSegments:
    """segments: in the order in which they go. log_start_offset: where the log begins without them; None where that
    does not change."""

    segments: list[RemoteSegment] = field(default_factory=list)
    log_start_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    """Bounds of a log. lineage: its leader epochs. only_local_bytes: of segments that were not copied."""

    lineage: Sequence[EpochEntry]
    log_start_offset: int
    log_end_offset: int
    only_local_bytes: int


def expired_segments(
    remote: RemoteLogMetadataCache, config: LogConfig, bounds: LogBounds, now_ms: int
) -> ExpiredSegments:
    """The segments to delete now; the caller moves the log start offset before the first one goes."""
    lineage = without_empty_epochs(bounds.lineage)
    if not lineage:
        return ExpiredSegments()
    expired = ExpiredSegments()
    surplus = _surplus(remote, config, bounds, lineage)
    first_epoch = lineage[0].epoch
    for segment in _of_lineage(remote, lineage):
        if segment.end_offset < bounds.log_start_offset and segment.last_epoch <= first_epoch:
            surplus -= segment.size
            expired.segments.append(segment)
            continue
        if why_not_of_the_log(segment, lineage, bounds.log_end_offset) is not None:
            continue
        is_old = config.retention_ms >= 0 and segment.max_timestamp <= now_ms - config.retention_ms
        if not (is_old or 0 < segment.size <= surplus):
            break
        surplus -= segment.size
        expired.segments.append(segment)
        expired.log_start_offset = segment.until
    chosen = {segment.segment_id for segment in expired.segments}
    earliest = bounds.lineage[0].epoch
    for epoch in remote.epochs:
        if epoch >= earliest:
            break
        for segment in remote.of_epoch(epoch):
            if segment.last_epoch < earliest and segment.segment_id not in chosen:
                chosen.add(segment.segment_id)
                expired.segments.append(segment)
    return expired


def _of_lineage(remote: RemoteLogMetadataCache, lineage: Sequence[EpochEntry]) -> Iterator[RemoteSegment]:
    seen = set()
    for entry in lineage:
        for segment in remote.of_epoch(entry.epoch):
            if segment.segment_id not in seen:
                seen.add(segment.segment_id)
                yield segment


def _surplus(
    remote: RemoteLogMetadataCache, config: LogConfig, bounds: LogBounds, lineage: Sequence[EpochEntry]
) -> int:
    """Bytes above retention.bytes (buildRetentionSizeData); 0 without such a limit."""
    if config.retention_bytes < 0:
        return 0
    if bounds.only_local_bytes + remote.finished_bytes <= config.retention_bytes:
        return 0  # all of them, of the log or not
    of_log = (
        segment.size
        for segment in _of_lineage(remote, lineage)
        if why_not_of_the_log(segment, lineage, bounds.log_end_offset) is None
    )
    return max(bounds.only_local_bytes + sum(of_log) - config.retention_bytes, 0)
