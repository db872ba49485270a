"""Which remote segments belong to a partition's log, by their leader epochs.

A log's lineage is its leader-epoch checkpoint: (epoch, start offset), both rising. Segments of a leader that an unclean
election put aside hold records that no consumer may see. Source: RemoteLogManager.isRemoteSegmentWithinLeaderEpochs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import pairwise

from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.log.tiered.remote_names import RemoteSegment

Lineage = Sequence[EpochEntry]
"""By epoch, empty epochs left out: `without_empty_epochs` makes it of a checkpoint."""


class ExclusionReason(Enum):
    """Why a segment is not part of a log. Values: in words."""

    NO_EPOCHS = "it has no leader epochs"
    EPOCH_OUTSIDE = "its last leader epoch lies outside the log's epochs"
    EPOCH_UNKNOWN = "the log does not have one of its leader epochs"
    BEGINS_BEFORE_EPOCH = "its first leader epoch begins in it before it begins in the log"
    OTHER_NEXT_EPOCH = "after one of its leader epochs another one follows, or elsewhere, than in the log"
    ENDS_AFTER_EPOCH = "it ends after the log's next leader epoch begins"
    ENDS_AFTER_LOG = "it ends at or after the log's end"


def without_empty_epochs(epochs: Iterable[EpochEntry]) -> list[EpochEntry]:
    """By epoch, without those in which nothing was written: the next one begins where they do."""
    entries = sorted(EpochEntry(*entry) for entry in epochs)
    return [one for one, after in pairwise(entries) if after.start_offset != one.start_offset] + entries[-1:]


def exclusion_reason(segment: RemoteSegment, lineage: Lineage, log_end: int | None = None) -> ExclusionReason | None:
    """The first reason against a segment; None when it is part of the log. log_end: of a live log, else None."""
    epochs = without_empty_epochs(segment.leader_epochs)
    if not epochs or not lineage:
        return ExclusionReason.NO_EPOCHS
    log_epochs = [entry.epoch for entry in lineage]
    last = epochs[-1].epoch
    if not log_epochs[0] <= last <= log_epochs[-1]:
        return ExclusionReason.EPOCH_OUTSIDE
    # Epochs before the log's first are of records that retention or DeleteRecords took from the log.
    epochs = [entry for entry in epochs if entry.epoch >= log_epochs[0]]
    for slot, (epoch, start) in enumerate(epochs):
        place = bisect_right(log_epochs, epoch) - 1
        if log_epochs[place] != epoch:
            return ExclusionReason.EPOCH_UNKNOWN
        # In the log's first epoch records may be gone that the segment still has.
        if slot == 0 and place > 0 and start < lineage[place].start_offset:
            return ExclusionReason.BEGINS_BEFORE_EPOCH
        follower = lineage[place + 1] if place + 1 < len(lineage) else None
        if epoch != last:
            if follower != epochs[slot + 1]:
                return ExclusionReason.OTHER_NEXT_EPOCH
        elif follower is not None and segment.end_offset >= follower.start_offset:
            return ExclusionReason.ENDS_AFTER_EPOCH
    if log_end is not None and segment.end_offset >= log_end:
        return ExclusionReason.ENDS_AFTER_LOG
    return None


def newest(segments: Iterable[RemoteSegment]) -> RemoteSegment | None:
    """The segment whose leader-epoch file is the lineage where no live log has one; None without segments."""
    return max(
        segments,
        key=lambda segment: (segment.last_epoch, segment.end_offset, -segment.start_offset, segment.segment_id),
        default=None,
    )
