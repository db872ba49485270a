"""Parts of a log: the segments, local or remote, that hold its offsets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kafkalog_spark.format.layout import MAX_INT64
from kafkalog_spark.format.names import SegmentFiles
from kafkalog_spark.log.read.log_end import LogEnd
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.remote.remote_dir_listing import RemoteDirListing
from kafkalog_spark.log.remote.stored_segment import StoredSegment
from kafkalog_spark.log.tiered.object_keys import RemoteObjects
from kafkalog_spark.store.interface import FileFacts


class LogPart(NamedTuple):
    """Offsets [start, until) of a log, and the segment from which they are read.

    Attributes:
        files: File names of the segment. The base offset of a remote one is `start`.
        next_base: Base offset of the next local segment; None for the last one of a live log, and for a remote segment.
        facts: Facts of the files of a local segment, by name.
        held: The remote segment; None for a local one, or while its metadata was not fetched.
        listing: While the metadata of a remote segment was not fetched: its directory. Else None.
        objects: While the metadata of a remote segment was not fetched: the names of its objects. Else None.
    """

    start: int
    until: int
    files: SegmentFiles
    next_base: int | None
    facts: Mapping[str, FileFacts]
    held: StoredSegment | None = None
    listing: RemoteDirListing | None = None
    objects: RemoteObjects | None = None

    @property
    def is_pending(self) -> bool:
        """True for a remote segment of which only the file names are known."""
        return self.listing is not None

    @property
    def is_local(self) -> bool:
        return self.held is None and self.listing is None

    @property
    def end_of_file(self) -> int | None:
        """Offset after the segment, which may end after the part; None for the last segment of a live log."""
        if self.is_local:
            return self.next_base
        return self.until if self.held is None else self.held.segment.until

    @property
    def remote_path(self) -> str | None:
        """Path of a remote segment's .log; None for a local one."""
        source = self.held or self.listing
        return None if source is None else os.path.join(source.remote_dir.directory, self.files.log)


@dataclass(frozen=True)
class PlannedLog:
    """Facts of a log that the planner collects, so that a task reads a range without listing directories."""

    log_start: int
    log_end: LogEnd
    parts: tuple[LogPart, ...]


def local_parts(local: PartitionLog, start: int, until: int) -> list[LogPart]:
    """Return the parts for the local segments with offsets in [start, until)."""
    parts = []
    for index, files in enumerate(local.segments):
        following = local.next_base_offset(index)
        end = MAX_INT64 if following is None else following
        if files.base_offset < until and end > start:
            names = (files.log, files.offset_index, files.time_index, files.transaction_index)
            facts = {name: local.facts[name] for name in names if name is not None and name in local.facts}
            parts.append(LogPart(max(start, files.base_offset), min(end, until), files, following, facts))
    return parts
