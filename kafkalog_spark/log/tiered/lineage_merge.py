"""Merge of a partition's local and remote segments to one log, by leader epochs.

Remote segments overlap and repeat after leader changes. All segments of the log's lineage have the same records at the
same offsets, so any segment that contains an offset may be read for it. Local segments are preferred, because they cost
less; of several remote ones, the one with the highest end offset is chosen.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from kafkalog_spark.log.tiered.lineage import ExclusionReason, Lineage, exclusion_reason
from kafkalog_spark.log.tiered.remote_names import RemoteSegment


class OffsetSpan(NamedTuple):
    """Offsets [start, until): of adjacent local segments, or of a hole in the log."""

    start: int
    until: int


class LogPiece(NamedTuple):
    """Offsets [start, until) that are read from one segment, or from the local log.

    Attributes:
        source: The remote segment; None for the local log. The segment may begin before `start` and end after `until`,
            even in the middle of a batch: filter its records by offset.
    """

    source: RemoteSegment | None
    start: int
    until: int


class RedundancyReason(Enum):
    """Why a segment is not read although its leader epochs fit the log. The values are texts for messages."""

    BELOW_LOG_START = "it ends before the log begins"
    COVERED = "other remote segments hold its offsets"
    LOCAL = "the local log holds its offsets"
    OTHER_TOPIC_ID = "it belongs to a topic of the same name with another id"


class ExcludedSegment(NamedTuple):
    """A segment that is not read, and why."""

    segment: RemoteSegment
    reason: ExclusionReason | RedundancyReason


@dataclass(frozen=True, slots=True)
class LineageMerge:
    """Result of `merge_lineage`.

    Attributes:
        pieces: The log by offset, without overlaps.
        holes: Offsets between the pieces that no segment contains.
        excluded: Segments that are not read.
    """

    pieces: tuple[LogPiece, ...]
    holes: tuple[OffsetSpan, ...]
    excluded: tuple[ExcludedSegment, ...]


def topic_id_of(segments: Iterable[RemoteSegment]) -> uuid.UUID | None:
    """Return the id of the segment with the latest event: that of the newest topic of this name; None without segments.

    Use it only if there is no live log, whose partition.metadata has the id.
    """
    latest = max(segments, key=lambda segment: (segment.event_timestamp, segment.partition.topic_id), default=None)
    return latest.partition.topic_id if latest else None


def merge_lineage(
    remote: Sequence[RemoteSegment],
    lineage: Lineage,
    *,
    local: Sequence[OffsetSpan] = (),
    topic_id: uuid.UUID | None = None,
    log_start: int | None = None,
    log_end: int | None = None,
) -> LineageMerge:
    """Merge the segments of a partition to one log.

    Remote segments are not read below the first offset of the lineage: a broker truncates the checkpoint when the log
    start offset moves.

    Args:
        remote: Complete segments of one topic and partition, in any order.
        lineage: Of the live log, else of the `newest` segment.
        local: Segments of one replica, in any order.
        topic_id: Segments with another topic id are excluded; None if all have the same id.
        log_start: Log start offset; None if unknown.
        log_end: Log end offset of a live log, which remote segments must not reach; None without a live log.
    """
    excluded: list[ExcludedSegment] = []
    candidates: list[RemoteSegment] = []
    floor = max(log_start or 0, lineage[0].start_offset if lineage else 0)
    for segment in remote:
        reason: ExclusionReason | RedundancyReason | None
        if topic_id is not None and segment.partition.topic_id != topic_id:
            reason = RedundancyReason.OTHER_TOPIC_ID
        else:
            reason = exclusion_reason(segment, lineage, log_end)
        if reason is None and segment.until <= floor:
            reason = RedundancyReason.BELOW_LOG_START
        if reason is None:
            candidates.append(segment)
        else:
            excluded.append(ExcludedSegment(segment, reason))
    spans = _joined(local, log_start or 0)
    pieces, holes = _pieces_and_holes(candidates, spans, floor)
    used = {piece.source.segment_id for piece in pieces if piece.source is not None}
    for segment in candidates:
        if segment.segment_id not in used:
            start = max(segment.start_offset, floor)
            is_local = any(span.start <= start and segment.until <= span.until for span in spans)
            excluded.append(ExcludedSegment(segment, RedundancyReason.LOCAL if is_local else RedundancyReason.COVERED))
    return LineageMerge(tuple(pieces), tuple(holes), tuple(excluded))


def _joined(local: Sequence[OffsetSpan], log_start: int) -> list[OffsetSpan]:
    """Return the spans by offset, from the log start offset on, with adjacent spans joined."""
    joined: list[OffsetSpan] = []
    for start, until in sorted(local):
        start = max(start, log_start)
        if start >= until:
            continue
        if joined and start <= joined[-1].until:
            joined[-1] = OffsetSpan(joined[-1].start, max(until, joined[-1].until))
        else:
            joined.append(OffsetSpan(start, until))
    return joined


def _pieces_and_holes(
    remote: Sequence[RemoteSegment], local: Sequence[OffsetSpan], floor: int
) -> tuple[list[LogPiece], list[OffsetSpan]]:
    """Choose the source of each offset, from the lowest offset on. Remote segments are not read below `floor`."""

    def preference(segment: RemoteSegment) -> tuple[int, int, int, int, uuid.UUID]:
        """Prefer the highest end offset, then the newest segment; a total order, so that all tasks choose alike."""
        return (
            segment.end_offset, segment.last_epoch, segment.event_timestamp, -segment.start_offset, segment.segment_id,
        )  # fmt: skip

    waiting = sorted(remote, key=lambda segment: segment.start_offset)
    pieces: list[LogPiece] = []
    holes: list[OffsetSpan] = []
    best: RemoteSegment | None = None  # the preferred one of those that begin at or before `at`
    next_remote = next_local = 0
    starts = [max(waiting[0].start_offset, floor)] if waiting else []
    at = min([*starts, *(span.start for span in local[:1])], default=0)
    while True:
        while next_remote < len(waiting) and max(waiting[next_remote].start_offset, floor) <= at:
            segment = waiting[next_remote]
            best = segment if best is None else max(best, segment, key=preference)
            next_remote += 1
        while next_local < len(local) and local[next_local].until <= at:
            next_local += 1
        span = local[next_local] if next_local < len(local) else None
        if span is not None and span.start <= at:
            piece = LogPiece(None, at, span.until)
        elif best is not None and best.until > at:
            piece = LogPiece(best, at, min(best.until, span.start) if span else best.until)
        else:
            follows = [span.start] if span else []
            if next_remote < len(waiting):
                follows.append(max(waiting[next_remote].start_offset, floor))
            if not follows:
                break
            holes.append(OffsetSpan(at, min(follows)))
            at = min(follows)
            continue
        at = piece.until
        pieces.append(piece)
    return pieces, holes
