"""The parts that a log of local and remote segments is put together of."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from kafkalog_spark.log.format.layout import MAX_INT64
from kafkalog_spark.log.format.names import SegmentFiles
from kafkalog_spark.log.read.log_end import LogEnd
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.remote_segment_file import HeldSegment
from kafkalog_spark.log.store.interface import FileFacts
from kafkalog_spark.log.tiered.remote_walk import LocalSpan, LogWalk


class Part(NamedTuple):
    """Offsets [start, until) and where they are read. files: of the segment; next_base: where the local segment ends,
    None for the last one of a live log; facts: of a local one's files; held: the remote segment, None for a local one.
    """

    start: int
    until: int
    files: SegmentFiles
    next_base: int | None
    facts: Mapping[str, FileFacts]
    held: HeldSegment | None

    @property
    def end_of_file(self) -> int | None:
        """Where the segment ends that is opened for it; None for the last one of a live log."""
        return self.next_base if self.held is None else self.held.segment.until


@dataclass(frozen=True)
class KnownLog:
    """What was found out of a log when a read of it was planned: enough to read a range without a listing."""

    log_start: int
    log_end: LogEnd
    parts: tuple[Part, ...]


def spans_of(local: PartitionLog) -> list[LocalSpan]:
    """Of each local segment; where the last one ends matters to nobody here."""
    bases = [segment.base_offset for segment in local.segments]
    return [LocalSpan(*span) for span in zip(bases, [*bases[1:], MAX_INT64], strict=True)]


def parts_of(walk: LogWalk, by_id: Mapping[uuid.UUID, HeldSegment], local: PartitionLog | None) -> list[Part]:
    parts = []
    for source, start, until in walk.pieces:
        if source is not None:
            held = by_id[source.segment_id]
            files = replace(held.files, base_offset=start)
            parts.append(Part(start, until, files, None, {}, held))
            continue
        assert local is not None
        for index, files in enumerate(local.segments):
            following = local.next_base_offset(index)
            end = MAX_INT64 if following is None else following
            if files.base_offset < until and end > start:
                names = (files.log, files.offset_index, files.time_index, files.transaction_index)
                facts = {name: local.facts[name] for name in names if name is not None and name in local.facts}
                parts.append(Part(max(start, files.base_offset), min(end, until), files, following, facts, None))
    return parts
