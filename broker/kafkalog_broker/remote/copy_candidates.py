"""Segments that are to be copied to remote storage, and the metadata and files of a copy (Kafka's `RLMCopyTask`)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.log_segment import LogSegment, segments_from
from kafkalog_broker.storage.partition.producer_replay import newest_snapshot, replay_segments
from kafkalog_broker.storage.partition.producer_state import ProducerState
from kafkalog_spark.format import names
from kafkalog_spark.format.checkpoint import EpochEntry, format_leader_epochs
from kafkalog_spark.format.partition_metadata import new_uuid
from kafkalog_spark.format.producer_snapshot import write_producer_snapshot
from kafkalog_spark.log.remote.segment_upload import LogSegmentData
from kafkalog_spark.log.tiered.object_keys import RemoteFile
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment


def segments_to_copy(log: Log) -> Iterator[tuple[LogSegment, int]]:
    """Yield the segments to copy, each with the base offset of the next one (Kafka: `candidateLogSegments`).

    These are the closed segments above the highest remote offset whose records all lie below the last stable offset;
    none if the topic does not copy segments.
    """
    if not log.config.copies_segments:
        return
    first = max(log.highest_offset_in_remote_storage + 1, log.log_start_offset)
    stable = log.last_stable_offset
    for segment, following in pairwise(segments_from(log.segments, first)):
        if following.base_offset > stable:
            return
        yield segment, following.base_offset


def prepare_copy(
    log: Log, segment: LogSegment, until: int, broker_id: int, now_ms: int
) -> tuple[RemoteSegment, LogSegmentData]:
    """Return the metadata and the files of a copy of a flushed segment. Blocks if the producer snapshot is missing.

    Args:
        until: Base offset of the next segment.

    Raises:
        BrokerError: kafka_storage_error if the segment is still being written or has no leader epochs.
        CorruptLog, OSError: If the missing producer snapshot cannot be written.
    """
    epochs = log.epochs.entries
    first = max((entry for entry in epochs if entry.start_offset <= segment.base_offset), default=None)
    within = [entry for entry in epochs if segment.base_offset < entry.start_offset < until]
    if first is not None:
        within = [EpochEntry(first.epoch, segment.base_offset), *within]
    has_epochs = bool(within) and within[0].start_offset <= max(segment.base_offset, log.log_start_offset)
    if not has_epochs or segment.writer is not None:  # segments from before KIP-101 have no leader epochs
        reason = "it is still being written" if has_epochs else "its leader epochs are unknown"
        message = f"segment {segment.base_offset} cannot be copied: {reason}"
        raise log.partition_error(ErrorCode.kafka_storage_error, message, segment.base_offset)
    aborted = bool(segment.aborted())
    metadata = RemoteSegment(
        log.identity, new_uuid(), segment.base_offset, until - 1,
        tuple(within), segment.size, segment.largest_timestamp, broker_id, now_ms, None,
        transaction_index_empty=not aborted,
    )  # fmt: skip
    indexes = {
        RemoteFile.OFFSET_INDEX: Path(segment.index_path),
        RemoteFile.TIME_INDEX: Path(segment.path(names.TIME_INDEX_SUFFIX)),
        RemoteFile.PRODUCER_SNAPSHOT: log.local.producer_snapshot(until) or _write_snapshot(log, until),
    }
    if aborted:
        indexes[RemoteFile.TRANSACTION_INDEX] = Path(segment.path(names.TRANSACTION_INDEX_SUFFIX))
    leader_epochs = format_leader_epochs(entry for entry in epochs if entry.start_offset < until)
    return metadata, LogSegmentData(Path(segment.log_path), indexes, leader_epochs)


def _write_snapshot(log: Log, offset: int) -> Path:
    """Write the producer snapshot at `offset`, computed from an earlier snapshot and the records after it.

    A recovered log has snapshots of its last segments only. Raises CorruptLog, OSError.
    """
    segments = log.segments
    bases = [segment.base_offset for segment in segments if segment.base_offset < offset]
    known = [known for known in log.local.snapshot_offsets() if bases[0] <= known <= offset]
    state = newest_snapshot(log.directory, known)[0] or ProducerState(bases[0])
    replay_segments(state, log.directory, [(base, None) for base in bases], state.end_offset)
    path = log.directory / (names.segment_name(offset) + names.PRODUCER_SNAPSHOT_SUFFIX)
    write_producer_snapshot(path, state.entries())
    return path
