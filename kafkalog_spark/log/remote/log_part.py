"""Parts of a log: ranges of offsets, each with the local or remote segment from which it is read."""

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

    A part is pending while only the names of its remote objects are known.

    Attributes:
        files: File names of the segment. The base offset of a remote segment is `start`.
        next_base: Base offset of the next local segment; None for the last one of a live log, and for a remote segment.
        facts: Facts of the files of a local segment, by name.
        stored: The remote segment; None for a local part and for a pending part.
        listing: Directory of a pending part; else None.
        objects: Object names of a pending part; else None.
    """

    start: int
    until: int
    files: SegmentFiles
    next_base: int | None
    facts: Mapping[str, FileFacts]
    stored: StoredSegment | None = None
    listing: RemoteDirListing | None = None
    objects: RemoteObjects | None = None

    @property
    def is_pending(self) -> bool:
        """True for a remote segment whose metadata was not fetched yet."""
        return self.listing is not None

    @property
    def is_local(self) -> bool:
        return self.stored is None and self.listing is None

    @property
    def end_of_file(self) -> int | None:
        """Offset after the segment, which may end after the part; None for the last segment of a live log."""
        if self.is_local:
            return self.next_base
        return self.until if self.stored is None else self.stored.segment.until

    @property
    def remote_path(self) -> str | None:
        """Path of the .log of a remote segment; None for a local segment."""
        source = self.stored or self.listing
        return None if source is None else os.path.join(source.remote_dir.directory, self.files.log)


@dataclass(frozen=True)
class PlannedLog:
    """Facts of a log that the planner collects, so that a task reads a range without listing directories."""

    log_start: int
    log_end: LogEnd
    parts: tuple[LogPart, ...]


def local_parts(local: PartitionLog, start: int, until: int) -> list[LogPart]:
    """Return the parts of [start, until) in local segments."""
    parts = []
    for index, files in enumerate(local.segments):
        following = local.next_base_offset(index)
        end = MAX_INT64 if following is None else following
        if files.base_offset < until and end > start:
            names = (files.log, files.offset_index, files.time_index, files.transaction_index)
            facts = {name: local.facts[name] for name in names if name is not None and name in local.facts}
            parts.append(LogPart(max(start, files.base_offset), min(end, until), files, following, facts))
    return parts
