"""Location of a partition, and its log: the listed segments, the log start offset and the log end offset.

`log/remote/tiered_log.py` has subclasses for partitions with remote segments. They override methods that are marked as
hooks here.

A broker may be writing to the log, so the listing is a snapshot. Opening a segment that was deleted since raises
FileNotFoundError; the caller then refreshes the log, and resumes at the offset that it had reached. If the whole
partition was deleted since, the refreshed log has no segments.
"""

from __future__ import annotations

import errno
import os
import uuid
from bisect import bisect_right
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from kafkalog_spark.errors import CorruptLog, KafkalogError, NotALogDirectory, UnsupportedFormat
from kafkalog_spark.format import checkpoint
from kafkalog_spark.format.layout import MAX_INT64
from kafkalog_spark.format.names import SegmentFiles, live_segments, producer_snapshots
from kafkalog_spark.format.producer_snapshot import ProducerEntry
from kafkalog_spark.log.read.abort_source import AbortSource
from kafkalog_spark.log.read.log_end import LogEnd, find_log_end, last_batch_of
from kafkalog_spark.log.read.segment_file import NO_FACTS, SegmentFile
from kafkalog_spark.log.read.state_files import (
    Checkpoints,
    is_store_failure,
    read_partition_metadata,
    read_producer_snapshot,
)
from kafkalog_spark.store.interface import FileFacts, Store
from kafkalog_spark.store.local_store import LOCAL

MAX_LISTINGS = 100
"""How often a directory is listed again after a listed file was deleted or replaced. A log cleaner does not interfere
that often. But if an object store serves a segment that a broker appends to, most listings are outdated before the
segment is read."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OpenHints:
    """Facts from outside of a partition's directory, and options, with which its log is opened.

    Checkpoints are read before the log is opened, so that none is newer than the listing, and so ahead of its end.

    Attributes:
        recovery_point: Entry of the partition in recovery-point-offset-checkpoint; None if it has none.
        log_start: Entry of the partition in log-start-offset-checkpoint; None if it has none.
        pass_over_damage: The log ends after its last good batch, even if there is damage before it.
        known_end: An earlier end of the log, at which the search for the end resumes.
    """

    recovery_point: int | None = None
    log_start: int | None = None
    pass_over_damage: bool = False
    known_end: LogEnd | None = None


NO_HINTS = OpenHints()


@dataclass(frozen=True)
class PartitionLocation:
    """Directory and store of a partition. Small and picklable: a Spark task needs nothing else to open the log."""

    topic: str
    partition: int
    directory: str
    store: Store = LOCAL

    def open(
        self,
        *,
        pass_over_damage: bool = False,
        known_end: LogEnd | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> PartitionLog:
        """Read the checkpoints, then list the partition.

        Args:
            pass_over_damage: As in OpenHints.
            known_end: As in OpenHints.
            checkpoints: Cache of checkpoints; None to read them again.

        Raises:
            NotALogDirectory: If the directory does not exist or cannot be read.
        """
        hints = OpenHints(pass_over_damage=pass_over_damage, known_end=known_end)
        if self.has_checkpoints:
            hints = self.with_checkpoints(hints, checkpoints)
        return self.open_without_checkpoints(hints)

    def with_checkpoints(self, hints: OpenHints, checkpoints: Checkpoints | None = None) -> OpenHints:
        """Return `hints` with the entries of the log directory's checkpoints."""
        read_checkpoint = (checkpoints or Checkpoints()).read
        recovery_points = read_checkpoint(self.store, self.log_dir, checkpoint.RECOVERY_POINT_CHECKPOINT)
        log_starts = read_checkpoint(self.store, self.log_dir, checkpoint.LOG_START_OFFSET_CHECKPOINT)
        tp = self.topic, self.partition
        return replace(hints, recovery_point=recovery_points.get(tp), log_start=log_starts.get(tp))

    def open_without_checkpoints(self, hints: OpenHints = NO_HINTS) -> PartitionLog:
        """List the partition without reading checkpoints (hook). Raises NotALogDirectory."""
        return PartitionLog(self, hints)

    @property
    def log_dir(self) -> str:
        return os.path.dirname(self.directory)

    @property
    def stores(self) -> tuple[Store, ...]:
        """Stores of all directories that hold the partition (hook)."""
        return (self.store,)

    @property
    def is_remote(self) -> bool:
        """True if reading the partition may require requests over a network."""
        return any(store.is_remote for store in self.stores)

    @property
    def has_checkpoints(self) -> bool:
        """True if the checkpoints of a log directory may have entries for the partition (hook)."""
        return True

    @property
    def in_log_directory(self) -> PartitionLocation:
        """Location of the segments in the log directory alone (hook); `self` if there are no others."""
        return self

    def exists(self) -> bool:
        return self.store.exists(self.directory)

    def topic_id(self) -> uuid.UUID | None:
        """Return the topic ID in partition.metadata, None if the file is missing or cannot be read.

        If there is no ID, only offsets can show that a topic was deleted and created again.

        Raises:
            NotALogDirectory: If a request to an object store fails.
        """
        try:
            return read_partition_metadata(self.store, self.directory)
        except (KafkalogError, OSError) as error:
            if is_store_failure(error, self.store):
                raise NotALogDirectory(
                    f"the topic ID cannot be read: {error}", topic_partition=f"{self.topic}-{self.partition}"
                ) from error
            return None


class PartitionLog:
    """Log of a partition in one directory.

    The constructor raises NotALogDirectory if the directory does not exist or cannot be read.

    Attributes:
        names: Names in the directory, as of the last listing.
        facts: Sizes and versions of the files, as of the last listing.
        segments: File names of the segments that make up the log.
        is_deleted: True if the directory did not exist at the last refresh.
    """

    names: list[str]
    facts: Mapping[str, FileFacts]
    segments: list[SegmentFiles]

    def __init__(self, location: PartitionLocation, hints: OpenHints = NO_HINTS) -> None:
        self.location = location
        self.topic, self.partition = location.topic, location.partition
        self.directory, self.store = location.directory, location.store
        self.hints = hints
        self.is_deleted = False
        self.facts = NO_FACTS
        self._list()

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    def location_for(self, start: int, end: int | None) -> PartitionLocation:
        """Return the location for a task that reads [start, end), with facts that it need not request again (hook).

        end: None if the task is to read up to the log end offset that it finds.
        """
        return self.location

    def refresh(self) -> None:
        """List the directory again. If it was deleted, the log has no segments."""
        self.__dict__.pop("log_end", None)
        try:
            self._list()
        except NotALogDirectory:
            if self.store.exists(self.directory):
                raise
            self.is_deleted = True
            self.facts = NO_FACTS
            self._set_listing([], [])

    @property
    def recovery_point(self) -> int | None:
        return self.hints.recovery_point

    @property
    def pass_over_damage(self) -> bool:
        return self.hints.pass_over_damage

    def update_checkpoints(self, *, recovery_point: int | None, log_start: int | None) -> None:
        """Set new checkpoint entries, so that the next use of `log_end` searches again, from the last known end.

        The directory is not listed again.
        """
        known_end = self.__dict__.pop("log_end", self.hints.known_end)
        self.hints = replace(self.hints, recovery_point=recovery_point, log_start=log_start, known_end=known_end)

    def is_end_unchanged(self, end: LogEnd) -> bool:
        """Return True if the batch before an earlier end is unchanged. Then nothing before it was truncated."""
        index = self.segment_index(end.segment)
        if not self.segments or self.segments[index].base_offset != end.segment:
            return False
        try:
            with self.open_segment(index) as file:
                return last_batch_of(file, end) is not None
        except FileNotFoundError:
            return False

    def check_not_deleted(self) -> None:
        """Raise NotALogDirectory if the partition was deleted, as opening it would."""
        if self.is_deleted:
            raise self._unreadable_error(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))

    def _list(self) -> None:
        def end_of_swap(name: str) -> int:
            with self._open(SegmentFiles(int(name[:20]), name), None) as file:
                return find_log_end(file).offset

        for attempt in range(MAX_LISTINGS):
            try:
                listing = self.store.list(self.directory)
                self.facts = listing.files
                self._set_listing(listing.names, live_segments(listing.names, end_of_swap))
            except FileNotFoundError as error:
                if attempt < MAX_LISTINGS - 1 and self.store.exists(self.directory):
                    continue  # a .swap was renamed after it was listed
                raise self._unreadable_error(error) from error
            except OSError as error:
                raise self._unreadable_error(error) from error
            self.is_deleted = False
            return

    def _set_listing(self, names: list[str], segments: list[SegmentFiles]) -> None:
        self.names, self.segments = names, segments
        self._bases = [segment.base_offset for segment in segments]

    def _unreadable_error(self, error: OSError) -> NotALogDirectory:
        what = f"the partition's directory cannot be read: {error.strerror}"
        return NotALogDirectory(what, topic_partition=self.name, path=self.directory)

    @property
    def log_start_offset(self) -> int:
        """First visible offset: that of the first segment, or the one up to which records were deleted."""
        first = self._bases[0] if self._bases else 0
        return max(first, self.hints.log_start or 0)

    def segment_index(self, offset: int) -> int:
        """Return the index of the segment whose range contains `offset`; 0 for offsets before the first segment."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def next_base_offset(self, index: int) -> int | None:
        """Return the base offset of the next segment, None for the last one."""
        return self._bases[index + 1] if index + 1 < len(self._bases) else None

    def is_before_last_segment(self, end: int) -> bool:
        """Return True if `end` is certainly within the log, because the last segment begins at or after it."""
        return bool(self.segments) and end <= self.segments[-1].base_offset

    def open_segment(self, index: int) -> SegmentFile:
        """Open a segment.

        Raises:
            FileNotFoundError: If it has gone since it was listed.
            NotALogDirectory: If it cannot be opened.
        """
        try:
            return self._open_listed(index)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise NotALogDirectory(
                f"the segment cannot be opened: {error.strerror}",
                topic_partition=self.name,
                path=self.segment_path(index),
                hint="give the user that reads the log read permission" if isinstance(error, PermissionError) else None,
            ) from error

    def _open_listed(self, index: int) -> SegmentFile:
        return self._open(self.segments[index], self.next_base_offset(index))

    def _open(
        self, files: SegmentFiles, next_base: int | None, facts: Mapping[str, FileFacts] | None = None
    ) -> SegmentFile:
        return SegmentFile.open(
            self.store, self.directory, files, next_base, self.name, facts=self.facts if facts is None else facts,
            pass_over_damage=self.pass_over_damage,
        )  # fmt: skip

    def segment_path(self, index: int) -> str:
        return os.path.join(self.directory, self.segments[index].log)

    def prefetch_segments(self, start: int, end: int) -> None:
        """Prefetch the metadata that is needed to open the segments of [start, end) (hook).

        Segments in a log directory have no metadata.
        """

    def largest_timestamp(self, index: int) -> int | None:
        """Return the largest timestamp (ms) in a segment, control batches included, or None if unknown (hook).

        The segment is not opened. Only the metadata of remote segments has the timestamp.
        """
        return None

    def size_of(self, index: int) -> int:
        """Return the bytes of a segment's .log. Raises FileNotFoundError if it has gone since it was listed."""
        known = self.facts.get(self.segments[index].log)
        return os.stat(self.segment_path(index)).st_size if known is None else known.size

    def open_segment_at(self, offset: int) -> SegmentFile | None:
        """Open the segment whose range contains `offset`; None if there is no segment.

        Raises as `_retry_while_segments_vanish`.
        """
        return self._retry_while_segments_vanish(lambda: self.open_segment(self.segment_index(offset)), offset)

    def _retry_while_segments_vanish(self, read: Callable[[], T], offset: int) -> T | None:
        """Return the result of `read`, which opens the segment of `offset`; None if there is no segment.

        List the directory again while segments disappear. Raises NotALogDirectory as `open_segment`, and for a segment
        that is listed MAX_LISTINGS times but never exists.
        """
        for _ in range(MAX_LISTINGS):
            if not self.segments:
                return None
            path = self.segment_path(self.segment_index(offset))
            try:
                return read()
            except FileNotFoundError:
                self.refresh()
        raise NotALogDirectory(
            "the segment is listed and cannot be opened: it does not exist",
            topic_partition=self.name,
            path=path,
            hint="it may be a broken symbolic link, or an object that is replaced constantly",
        )

    def refresh_after_replacement(self, file: SegmentFile, gone: FileNotFoundError, tries: int) -> None:
        """List the directory again after an object was replaced while it was read.

        Raises:
            NotALogDirectory: If `tries` has reached MAX_LISTINGS.
        """
        if tries >= MAX_LISTINGS:
            raise NotALogDirectory(
                f"the segment was replaced {tries} times while it was read: {gone.strerror}",
                topic_partition=file.topic_partition,
                path=file.path,
                hint="read a copy that does not change",
            ) from gone
        self.refresh()

    def refresh_and_compare(self, file: SegmentFile) -> bool:
        """Refresh the listing, and return True if `file` or the next segment has changed since `file` was opened.

        A segment may look damaged because a recovering broker truncated it during the read, or because the cleaner
        merged it with others.
        """
        changed = file.has_changed()
        self.refresh()
        if not self.segments:
            return True
        index = self.segment_index(file.base_offset)
        now = self.segments[index].log, self.next_base_offset(index)
        return changed or now != (file.files.log, file.next_base_offset)

    @cached_property
    def log_end(self) -> LogEnd:
        """End of the log as of the last refresh.

        If the log ends below its start, because files were removed by hand, its end is its start, as in Kafka.

        Raises:
            CorruptBatch, UnsupportedFormat: As `find_log_end`.
            NotALogDirectory: If the last segment cannot be read.
        """

        def find_end() -> LogEnd:
            with self.open_segment(len(self.segments) - 1) as file:
                return find_log_end(file, self.hints.recovery_point, self.hints.known_end)

        end = self._retry_while_segments_vanish(find_end, MAX_INT64) or LogEnd(0, 0)
        return end._replace(offset=max(end.offset, self.log_start_offset))

    @property
    def log_end_offset(self) -> int:
        """LEO: the offset of the next record."""
        return self.log_end.offset

    def snapshots_up_to(self, offset: int) -> list[tuple[int, str]]:
        """Return (offset, path) of the producer snapshots at or below `offset`, the latest first."""
        found = producer_snapshots(self.names)
        return [(at, os.path.join(self.directory, name)) for at, name in reversed(found) if at <= offset]

    def read_snapshot(self, path: str) -> list[ProducerEntry]:
        """Return the entries of a producer snapshot. Raises CorruptSnapshot, UnsupportedFormat, OSError."""
        return read_producer_snapshot(self.store, path)

    def latest_snapshot(self, offset: int) -> tuple[int, list[ProducerEntry]] | None:
        """Return (offset, entries) of the latest readable producer snapshot up to `offset`, None if there is none."""
        for at, path in self.snapshots_up_to(offset):
            if at < self.log_start_offset:
                break
            # If it cannot be read, an older one, or the log itself, has the same information.
            with suppress(CorruptLog, UnsupportedFormat, OSError):
                return at, self.read_snapshot(path)
        return None

    def abort_sources(self, start: int, end: int) -> list[AbortSource]:
        """Return the sources of the aborted transactions in [start, end), in the order of their offsets (hook).

        The .txnindex of a log directory is not used: a missing or truncated one would make the log seem to have no
        aborted transactions.
        """
        return [AbortSource(start, end, None)]
