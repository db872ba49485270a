"""Segments that go to remote storage, and those that go from there: which, and what belongs to a copy of one
(RemoteLogManager.RLMCopyTask, RLMExpirationTask)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.remote.remote_log_metadata_manager import RemoteLogMetadataCache
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.log_segment import LogSegment, segments_from
from kafkalog_broker.storage.partition.producer_state import ProducerState, newest_snapshot, replay_segments
from kafkalog_broker.storage.partition.retention import FAR_AHEAD_MS
from kafkalog_spark.format import names
from kafkalog_spark.format.checkpoint import EpochEntry, format_leader_epochs
from kafkalog_spark.format.partition_metadata import new_uuid
from kafkalog_spark.format.producer_snapshot import write_producer_snapshot
from kafkalog_spark.log.remote.remote_storage import LogSegmentData
from kafkalog_spark.log.tiered.lineage import why_not_of_the_log, without_empty_epochs
from kafkalog_spark.log.tiered.remote_names import RemoteFile, RemoteSegment


def segments_to_copy(log: Log) -> Iterator[tuple[LogSegment, int]]:
    """Closed segments, and the base offset of the next one, all of whose records are stable, from the first offset on
    that is not remote; none of a log that is not copied (candidateLogSegments)."""
    if not log.config.copies_segments:
        return
    first = max(log.highest_offset_in_remote_storage + 1, log.log_start_offset)
    stable = log.last_stable_offset
    for segment, following in pairwise(segments_from(log.segments, first)):
        if following.base_offset > stable:
            return
        yield segment, following.base_offset


def prepared_copy(
    log: Log, segment: LogSegment, until: int, broker_id: int, now_ms: int
) -> tuple[RemoteSegment, LogSegmentData]:
    """Metadata and files of a segment that is on disk; `until`: the next one's base offset. Blocks where the producer
    snapshot has to be made. Raises BrokerError, CorruptLog, OSError."""
    epochs = log.epochs.entries
    begins = max((entry for entry in epochs if entry.start_offset <= segment.base_offset), default=None)
    within = [entry for entry in epochs if segment.base_offset < entry.start_offset < until]
    if begins is not None:
        within = [EpochEntry(begins.epoch, segment.base_offset), *within]
    is_known = bool(within) and within[0].start_offset <= max(segment.base_offset, log.log_start_offset)
    if not is_known or segment.writer is not None:  # what is older than leader epochs has none
        why = "it is still being written" if is_known else "nothing is known of its leader epochs"
        what = f"the segment {segment.base_offset} cannot be copied: {why}"
        raise log.error(ErrorCode.kafka_storage_error, what, segment.base_offset)
    aborted = bool(segment.aborted())
    metadata = RemoteSegment(
        log.identity, new_uuid(), segment.base_offset, until - 1,
        tuple(within), segment.size, segment.largest_timestamp, broker_id, now_ms, None,
        transaction_index_empty=not aborted,
    )  # fmt: skip
    indexes = {
        RemoteFile.OFFSET_INDEX: Path(segment.index_path),
        RemoteFile.TIME_INDEX: Path(segment.path(names.TIME_INDEX_SUFFIX)),
        RemoteFile.PRODUCER_SNAPSHOT: log.local.producer_snapshot(until) or _make_snapshot(log, until),
    }
    if aborted:
        indexes[RemoteFile.TRANSACTION_INDEX] = Path(segment.path(names.TRANSACTION_INDEX_SUFFIX))
    leader_epochs = format_leader_epochs(entry for entry in epochs if entry.start_offset < until)
    return metadata, LogSegmentData(Path(segment.log_path), indexes, leader_epochs)


def _make_snapshot(log: Log, offset: int) -> Path:
    """The producer snapshot of an offset, made of an earlier one and what lies between: a log that was recovered has
    those of its last segments only. Raises CorruptLog, OSError."""
    segments = log.segments
    bases = [segment.base_offset for segment in segments if segment.base_offset < offset]
    known = [known for known in log.local.snapshot_offsets() if bases[0] <= known <= offset]
    state = newest_snapshot(log.directory, known)[0] or ProducerState(bases[0])
    replay_segments(state, log.directory, [(base, None) for base in bases], state.end_offset)
    path = log.directory / (names.segment_name(offset) + names.PRODUCER_SNAPSHOT_SUFFIX)
    write_producer_snapshot(path, state.entries())
    return path


@dataclass(slots=True)
class ExpiredSegments:
    """segments: in the order in which they go. log_start_offset: of the log without them; None where it stays.
    from_future: the first segment that stays, if retention.ms keeps it because of a timestamp far in the future."""

    segments: list[RemoteSegment] = field(default_factory=list)
    log_start_offset: int | None = None
    from_future: RemoteSegment | None = None


def expired_segments(
    remote: RemoteLogMetadataCache, config: LogConfig, epochs: Sequence[EpochEntry], now_ms: int, *,
    log_start_offset: int, log_end_offset: int, only_local_bytes: int,
) -> ExpiredSegments:  # fmt: skip
    """The segments to delete now; the caller moves the log start offset before the first one goes. epochs: the log's.
    only_local_bytes: of segments that were not copied.

    As in Kafka the reasons are, in this order: the segment lies below the log start offset, its newest record is older
    than retention.ms, the log, remote and local together, is larger than retention.bytes. Segments go from the oldest
    on, to the first that stays. Segments of epochs that lie before the log's first go too; others that are not of the
    log stay."""
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
