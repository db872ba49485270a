"""Merge of the local and remote segments of a partition into one log, by leader epochs.

After leader changes, remote segments overlap, and offsets may be copied more than once. All segments of the log's
lineage have the same records at the same offsets, so an offset can be read from any segment that contains it. Local
segments are preferred, because reading them costs less; of several remote segments, the one with the highest end offset
is chosen.

`until` is the offset after the last one; the `end_offset` of a remote segment is its last one.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from kafkalog_spark.log.tiered.lineage import ExclusionReason, Lineage, exclusion_reason
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment


class OffsetSpan(NamedTuple):
    """Offsets [start, until) of adjacent local segments or of a hole in the log."""

    start: int
    until: int


class LogPiece(NamedTuple):
    """Offsets [start, until) that are read from one segment, or from the local log.

    Attributes:
        source: The remote segment; None for the local log. The segment may begin before `start` and end after `until`,
            even in the middle of a batch, so filter its records by offset.
    """

    source: RemoteSegment | None
    start: int
    until: int


class SkipReason(Enum):
    """Why a segment is not read, apart from its leader epochs. The values are texts for messages."""

    BELOW_LOG_START = "it ends before the log begins"
    COVERED = "other remote segments contain its offsets"
    LOCAL = "the local log contains its offsets"
    OTHER_TOPIC_ID = "it belongs to a topic of the same name with another topic ID"


class ExcludedSegment(NamedTuple):
    """A segment that is not read, and why."""

    segment: RemoteSegment
    reason: ExclusionReason | SkipReason


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


def latest_topic_id(segments: Iterable[RemoteSegment]) -> uuid.UUID | None:
    """Return the topic ID of the segment with the latest event; None if there are no segments.

    If topics of the same name were deleted and created, this is the ID of the newest one. Use it only without a live
    log, because the partition.metadata file of a live log has the topic ID.
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
    """Merge the segments of a partition into one log.

    Remote segments are not read below the first offset of the lineage, because a broker drops older entries from
    leader-epoch-checkpoint when the log start offset moves.

    Args:
        remote: Complete segments of one topic and partition, in any order.
        lineage: Lineage of the live log; without one, the lineage of the newest segment (`lineage.newest_segment`).
        local: Offset spans of the segments of one replica, in any order.
        topic_id: Exclude segments with another topic ID; None if all have the same.
        log_start: Log start offset; None if unknown.
        log_end: Log end offset of a live log; remote segments that end at or after it are excluded. None without a live
            log.
    """
    excluded: list[ExcludedSegment] = []
    candidates: list[RemoteSegment] = []
    lowest_offset = max(log_start or 0, lineage[0].start_offset if lineage else 0)
    for segment in remote:
        reason: ExclusionReason | SkipReason | None
        if topic_id is not None and segment.partition.topic_id != topic_id:
            reason = SkipReason.OTHER_TOPIC_ID
        else:
            reason = exclusion_reason(segment, lineage, log_end)
        if reason is None and segment.until <= lowest_offset:
            reason = SkipReason.BELOW_LOG_START
        if reason is None:
            candidates.append(segment)
        else:
            excluded.append(ExcludedSegment(segment, reason))
    spans = _join_spans(local, log_start or 0)
    pieces, holes = _choose_sources(candidates, spans, lowest_offset)
    used = {piece.source.segment_id for piece in pieces if piece.source is not None}
    for segment in candidates:
        if segment.segment_id not in used:
            start = max(segment.start_offset, lowest_offset)
            is_local = any(span.start <= start and segment.until <= span.until for span in spans)
            excluded.append(ExcludedSegment(segment, SkipReason.LOCAL if is_local else SkipReason.COVERED))
    return LineageMerge(tuple(pieces), tuple(holes), tuple(excluded))


def _join_spans(local: Sequence[OffsetSpan], log_start: int) -> list[OffsetSpan]:
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


def _choose_sources(
    remote: Sequence[RemoteSegment], local: Sequence[OffsetSpan], lowest_offset: int
) -> tuple[list[LogPiece], list[OffsetSpan]]:
    """Return the log by offset, with the source of each piece, and its holes.

    Remote segments are not read below `lowest_offset`.
    """

    def preference(segment: RemoteSegment) -> tuple[int, int, int, int, uuid.UUID]:
        """Prefer the highest end offset, then the newest segment. The order is total, so all tasks choose the same."""
        return (
            segment.end_offset, segment.last_epoch, segment.event_timestamp, -segment.start_offset, segment.segment_id,
        )  # fmt: skip

    by_start = sorted(remote, key=lambda segment: segment.start_offset)
    pieces: list[LogPiece] = []
    holes: list[OffsetSpan] = []
    best: RemoteSegment | None = None  # the preferred segment among those that begin at or before `offset`
    next_remote = next_local = 0
    starts = [max(by_start[0].start_offset, lowest_offset)] if by_start else []
    offset = min([*starts, *(span.start for span in local[:1])], default=0)
    while True:
        while next_remote < len(by_start) and max(by_start[next_remote].start_offset, lowest_offset) <= offset:
            segment = by_start[next_remote]
            best = segment if best is None else max(best, segment, key=preference)
            next_remote += 1
        while next_local < len(local) and local[next_local].until <= offset:
            next_local += 1
        span = local[next_local] if next_local < len(local) else None
        if span is not None and span.start <= offset:
            piece = LogPiece(None, offset, span.until)
        elif best is not None and best.until > offset:
            piece = LogPiece(best, offset, min(best.until, span.start) if span else best.until)
        else:
            next_starts = [span.start] if span else []
            if next_remote < len(by_start):
                next_starts.append(max(by_start[next_remote].start_offset, lowest_offset))
            if not next_starts:
                break
            holes.append(OffsetSpan(offset, min(next_starts)))
            offset = min(next_starts)
            continue
        offset = piece.until
        pieces.append(piece)
    return pieces, holes
