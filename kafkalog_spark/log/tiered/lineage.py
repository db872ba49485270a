"""Lineage of a log, and the rules by which a remote segment belongs to it.

The lineage is the leader-epoch checkpoint of the log: pairs of epoch and start offset, both increasing. A segment
whose leader epochs are not in the lineage was copied by a former leader that diverged (unclean leader election). Its
records are not part of the log, and consumers must not see them. Kafka:
RemoteLogManager.isRemoteSegmentWithinLeaderEpochs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import pairwise

from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment

Lineage = Sequence[EpochEntry]
"""Entries in order of epochs, without empty epochs, as `without_empty_epochs` returns them."""


class ExclusionReason(Enum):
    """Why a segment does not belong to a log. The values are texts for messages."""

    NO_EPOCHS = "it has no leader epochs"
    NO_LINEAGE = "the log has no leader epochs"
    EPOCH_OUTSIDE = "its last leader epoch is outside the log's epochs"
    EPOCH_UNKNOWN = "the log does not have one of its leader epochs"
    BEGINS_BEFORE_EPOCH = "its first leader epoch begins at a lower offset than in the log"
    OTHER_NEXT_EPOCH = "after one of its leader epochs, the log continues with another epoch or at another offset"
    ENDS_AFTER_EPOCH = "it ends after the log's next leader epoch begins"
    ENDS_AFTER_LOG = "it ends at or after the log's end"


def without_empty_epochs(epochs: Iterable[EpochEntry]) -> list[EpochEntry]:
    """Return the entries sorted by epoch, without epochs that have no records.

    An epoch has no records if its start offset is also that of the next entry.
    """
    entries = sorted(EpochEntry(*entry) for entry in epochs)
    has_records = [entry for entry, following in pairwise(entries) if following.start_offset != entry.start_offset]
    return has_records + entries[-1:]


def epochs_within(epochs: Iterable[EpochEntry], start: int, until: int) -> tuple[EpochEntry, ...]:
    """Return the leader epochs of a segment with offsets [start, until).

    The entry of the first epoch gets `start` as its start offset, like the segmentLeaderEpochs of Kafka's
    RemoteLogManager.
    """
    within: list[EpochEntry] = []
    for entry in without_empty_epochs(epochs):
        if entry.start_offset >= until:
            break
        if entry.start_offset <= start:
            within = [EpochEntry(entry.epoch, start)]
        else:
            within.append(entry)
    return tuple(within)


def exclusion_reason(segment: RemoteSegment, lineage: Lineage, log_end: int | None = None) -> ExclusionReason | None:
    """Return why a segment does not belong to the log; None if it does.

    Args:
        segment: The segment.
        lineage: Lineage of the log.
        log_end: Log end offset of a live log; None without a live log.
    """
    epochs = without_empty_epochs(segment.leader_epochs)
    if not epochs:
        return ExclusionReason.NO_EPOCHS
    if not lineage:
        return ExclusionReason.NO_LINEAGE
    log_epochs = [entry.epoch for entry in lineage]
    last = epochs[-1].epoch
    if not log_epochs[0] <= last <= log_epochs[-1]:
        return ExclusionReason.EPOCH_OUTSIDE
    # Retention or DeleteRecords removed the records of the epochs before the first epoch of the lineage.
    epochs = [entry for entry in epochs if entry.epoch >= log_epochs[0]]
    for index, (epoch, start) in enumerate(epochs):
        log_index = bisect_right(log_epochs, epoch) - 1
        if log_epochs[log_index] != epoch:
            return ExclusionReason.EPOCH_UNKNOWN
        # The log's first epoch may begin later than in the segment, because its first records were deleted.
        if index == 0 and log_index > 0 and start < lineage[log_index].start_offset:
            return ExclusionReason.BEGINS_BEFORE_EPOCH
        following = lineage[log_index + 1] if log_index + 1 < len(lineage) else None
        if epoch != last:
            if following != epochs[index + 1]:
                return ExclusionReason.OTHER_NEXT_EPOCH
        elif following is not None and segment.end_offset >= following.start_offset:
            return ExclusionReason.ENDS_AFTER_EPOCH
    if log_end is not None and segment.end_offset >= log_end:
        return ExclusionReason.ENDS_AFTER_LOG
    return None


def newest_segment(segments: Iterable[RemoteSegment]) -> RemoteSegment | None:
    """Return the newest segment, or None if there are no segments.

    If there is no live log, its leader epochs are used as the lineage.
    """
    return max(
        segments,
        key=lambda segment: (segment.last_epoch, segment.end_offset, -segment.start_offset, segment.segment_id),
        default=None,
    )
