"""The parts that a log of local and remote segments is put together of."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kafkalog_spark.log.format.layout import MAX_INT64
from kafkalog_spark.log.format.names import SegmentFiles
from kafkalog_spark.log.read.log_end import LogEnd
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.remote_dir_listing import RemoteDirListing
from kafkalog_spark.log.read.remote_segment_file import HeldSegment
from kafkalog_spark.log.store.interface import FileFacts
from kafkalog_spark.log.tiered.remote_names import RemoteFile, RemoteObjects
from kafkalog_spark.log.tiered.remote_walk import LocalSpan, LogWalk


class Pending(NamedTuple):
    """A remote segment of which nothing was asked yet but its names."""

    listing: RemoteDirListing
    found: RemoteObjects

    @property
    def log_name(self) -> str:
        return self.found.objects[RemoteFile.LOG][0]

    @property
    def log_path(self) -> str:
        return os.path.join(self.listing.place.directory, self.log_name)


class Part(NamedTuple):
    """Offsets [start, until) and where they are read.

    files: of the segment, with the offset where the part begins as base offset of a remote one. next_base: where the
    local segment ends, None for the last one of a live log; facts: of a local one's files. held: the remote segment;
    pending: the same, as long as only its names are known. Both None for a local one.
    """

    start: int
    until: int
    files: SegmentFiles
    next_base: int | None
    facts: Mapping[str, FileFacts]
    held: HeldSegment | None = None
    pending: Pending | None = None

    @property
    def is_local(self) -> bool:
        return self.held is None and self.pending is None

    @property
    def end_of_file(self) -> int | None:
        """Where the segment ends that is opened for it; None for the last one of a live log."""
        if self.is_local:
            return self.next_base
        return self.until if self.held is None else self.held.segment.until

    @property
    def remote_path(self) -> str | None:
        """Path of a remote segment's .log; None for a local one."""
        if self.held is not None:
            return self.held.log_path
        return None if self.pending is None else self.pending.log_path


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
    """The parts that the walk of all segments has found."""
    parts = []
    for source, start, until in walk.pieces:
        if source is not None:
            held = by_id[source.segment_id]
            parts.append(Part(start, until, replace(held.files, base_offset=start), None, {}, held))
        elif local is not None:
            parts += local_parts(local, start, until)
    return parts


def parts_by_name(
    remote: Sequence[Pending], local: PartitionLog | None, floor: int, last: HeldSegment | None
) -> list[Part]:
    """The parts as names alone tell them: each segment goes on to where the next one begins, as it does unless leaders
    copied the same offsets twice. Whoever opens one finds out whether that is so.

    remote: by start offset, all before the local log, whose end is `last` if there is no local one. floor: where the
    log begins at the earliest.
    """
    starts = [pending.found.start_offset for pending in remote]
    if local is not None:
        end = local.segments[0].base_offset
    else:
        end = last.segment.until if last is not None else 0
    parts = [
        Part(max(start, floor), until, SegmentFiles(max(start, floor), pending.log_name), None, {}, pending=pending)
        for pending, start, until in zip(remote, starts, [*starts, end][1:], strict=True)
        if until > floor
    ]
    return parts if local is None else [*parts, *local_parts(local, floor, MAX_INT64)]


def local_parts(local: PartitionLog, start: int, until: int) -> list[Part]:
    """Of the local segments that hold offsets of [start, until)."""
    parts = []
    for index, files in enumerate(local.segments):
        following = local.next_base_offset(index)
        end = MAX_INT64 if following is None else following
        if files.base_offset < until and end > start:
            names = (files.log, files.offset_index, files.time_index, files.transaction_index)
            facts = {name: local.facts[name] for name in names if name is not None and name in local.facts}
            parts.append(Part(max(start, files.base_offset), min(end, until), files, following, facts))
    return parts
