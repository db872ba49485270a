"""One log of a partition, assembled from local and remote segments by leader epochs.

Remote segments overlap and repeat after leader changes. All segments of the log's lineage hold the same records at the
same offsets, so any segment that holds an offset may be read for it. The one that reaches furthest is chosen; local
segments are preferred, because they cost less.
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
    """Offsets [start, until) that local segments hold without a hole, or that nothing holds."""

    start: int
    until: int


class LogPiece(NamedTuple):
    """Offsets [start, until) that are read from one place. source: None for the local log; a remote segment may begin
    before `start` and end after `until`, also within a batch: filter records by offset."""

    source: RemoteSegment | None
    start: int
    until: int


class RedundancyReason(Enum):
    """Why a segment of the log is not read. Values: in words."""

    BELOW_LOG_START = "it ends before the log begins"
    COVERED = "other remote segments hold its offsets"
    LOCAL = "the local log holds its offsets"
    OTHER_TOPIC_ID = "it is of a topic of the same name with another id"


class ExcludedSegment(NamedTuple):
    """A segment that is not read, and why."""

    segment: RemoteSegment
    reason: ExclusionReason | RedundancyReason


@dataclass(frozen=True, slots=True)
class LineageMerge:
    """The log from its start to its end: pieces and holes by offset, neither overlapping; and what is not read."""

    pieces: tuple[LogPiece, ...]
    holes: tuple[OffsetSpan, ...]
    left_out: tuple[ExcludedSegment, ...]


def topic_id_of(segments: Iterable[RemoteSegment]) -> uuid.UUID | None:
    """Id of the newest of the topics that had this name, by the latest event; None without segments. A live log's
    partition.metadata takes precedence."""
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
    """A partition's log, put together. remote: segments of one topic-partition that are wholly there. lineage: of the
    live log, or of the `newest` segment. local: of one replica. All in any order. topic_id: segments of others are left
    out (None: all are of one). log_start: None for unknown. log_end: of a live log, None for none. What lies below the
    lineage's first offset is not read remotely: the checkpoint is cut when the log's start moves."""
    left_out: list[ExcludedSegment] = []
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
            left_out.append(ExcludedSegment(segment, reason))
    spans = _joined(local, log_start or 0)
    pieces, holes = _walk(candidates, spans, floor)
    taken = {piece.source.segment_id for piece in pieces if piece.source is not None}
    for segment in candidates:
        if segment.segment_id not in taken:
            start = max(segment.start_offset, floor)
            is_local = any(span.start <= start and segment.until <= span.until for span in spans)
            left_out.append(ExcludedSegment(segment, RedundancyReason.LOCAL if is_local else RedundancyReason.COVERED))
    return LineageMerge(tuple(pieces), tuple(holes), tuple(left_out))


def _joined(local: Sequence[OffsetSpan], log_start: int) -> list[OffsetSpan]:
    """Spans by offset, from the log's start on, neighbours made one."""
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


def _walk(
    remote: Sequence[RemoteSegment], local: Sequence[OffsetSpan], floor: int
) -> tuple[list[LogPiece], list[OffsetSpan]]:
    def order(segment: RemoteSegment) -> tuple[int, int, int, int, uuid.UUID]:
        """The one that goes furthest, then newest, with the smallest start and id: every task decides alike."""
        return (
            segment.end_offset, segment.last_epoch, segment.event_timestamp, -segment.start_offset, segment.segment_id,
        )  # fmt: skip

    waiting = sorted(remote, key=lambda segment: segment.start_offset)
    pieces: list[LogPiece] = []
    holes: list[OffsetSpan] = []
    best: RemoteSegment | None = None  # of those that begin at or before `at`
    next_remote = next_local = 0
    starts = [max(waiting[0].start_offset, floor)] if waiting else []
    at = min([*starts, *(span.start for span in local[:1])], default=0)
    while True:
        while next_remote < len(waiting) and max(waiting[next_remote].start_offset, floor) <= at:
            segment = waiting[next_remote]
            best = segment if best is None else max(best, segment, key=order)
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
