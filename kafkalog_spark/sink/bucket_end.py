"""Where the log of a partition goes on in a bucket. Objects cannot be cut: a log that has to be is refused."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from kafkalog_spark.errors import CorruptLog, KafkalogError
from kafkalog_spark.log.format import names
from kafkalog_spark.log.format.checkpoint import EpochEntry
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.partition_place import PartitionPlace
from kafkalog_spark.log.read.small_files import Checkpoints, leader_epochs
from kafkalog_spark.sink.bucket_record import BucketSegment
from kafkalog_spark.sink.partition_end import EMPTY_END, leader_epochs_at

_REPAIR = "copy the partition's directory to a disk, let a broker load it once, and put it back; nothing was written"


@dataclass(frozen=True, slots=True)
class BucketEnd:
    """next_offset: the log end offset. leader_epoch, epochs: as PartitionEnd. replaces_empty: the log ends with an
    empty segment, which begins at that offset."""

    next_offset: int
    leader_epoch: int
    epochs: tuple[EpochEntry, ...] | None
    replaces_empty: bool = False


NEW_END = BucketEnd(EMPTY_END.next_offset, EMPTY_END.leader_epoch, EMPTY_END.epochs)
"""Of a partition that is not there yet."""


def end_in_bucket(place: PartitionPlace, last: BucketSegment | None, checkpoints: Checkpoints) -> BucketEnd:
    """The end of a partition's log. One LIST, if `last`, the partition's last segment by the newest commit, is still
    the last one; else the end is looked for as readers do.

    What lies before the last segment is believed. Raises CorruptLog for a log that has to be cut or cleaned first,
    NotALogDirectory, FileNotFoundError.
    """
    log = place.open_unread()
    if last is not None and _is_last(log, last):
        return BucketEnd(last.next_offset, last.leader_epoch, None)
    try:
        _check_settled(log)
        log = place.open(checkpoints=checkpoints)
        end = log.log_end
        size = log.size_of(len(log.segments) - 1) if log.segments else 0
        if size != end.position:
            raise CorruptLog(
                f"the last segment has {size - end.position} bytes after its last whole batch, at byte {end.position}, "
                "as a crash or a copy of a running broker's file leaves them; an object cannot be cut",
                path=os.path.join(place.directory, log.segments[-1].log),
                position=end.position,
                offset=end.offset,
                hint=_REPAIR,
            )
    except KafkalogError as error:
        error.hint = error.hint or _REPAIR
        raise error.at(topic_partition=f"{place.topic}-{place.partition}") from None
    epoch, changed = leader_epochs_at(leader_epochs(place.store, place.directory), end.offset)
    replaces = bool(log.segments) and size == 0 and log.segments[-1].base_offset == end.offset
    return BucketEnd(end.offset, epoch, changed, replaces)


def _is_last(log: PartitionLog, segment: BucketSegment) -> bool:
    if not log.segments or log.segments[-1].base_offset != segment.base_offset:
        return False
    return log.size_of(len(log.segments) - 1) == segment.size


def _check_settled(log: PartitionLog) -> None:
    for name in log.names:
        if name.endswith((names.SWAP_SUFFIX, names.CLEANED_SUFFIX)) and names.parse_segment_file(name):
            raise CorruptLog(f"{name} is left from a cleaning that was not finished", path=log.directory, hint=_REPAIR)


def last_segments(segments: Mapping[tuple[str, int], list[BucketSegment]]) -> dict[tuple[str, int], BucketSegment]:
    """Of each partition the last segment."""
    return {key: own[-1] for key, own in segments.items()}
