"""Finds the parts of a log in its local directory and its remote directories.

It finds them in one of two ways:

1. By names (`_parts_by_name`). Object names contain the start offset of their segment. Each remote segment is assumed
   to end where the next one begins, which is nearly always correct, and to belong to the lineage of the log. Both
   assumptions are checked when the segment is first read and its metadata is fetched, with one small request.
2. By metadata (`_parts_by_metadata`), if such a check failed, for example after leader changes that copied offsets
   twice. The metadata of all segments is fetched and merged by the rules of KIP-405 (lineage_merge.py).

In Aiven's layout, the manifest of a segment contains its metadata. LocalTieredStorage writes no manifests: the metadata
is in `__remote_log_metadata`, or derived from the objects of the segment if that topic is not available.
"""

from __future__ import annotations

import errno
import logging
import uuid
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from kafkalog_spark.errors import KafkalogError, NotALogDirectory
from kafkalog_spark.format.layout import MAX_INT64
from kafkalog_spark.format.names import SegmentFiles
from kafkalog_spark.log.read.discovery import RemoteDir
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.state_files import leader_epochs
from kafkalog_spark.log.remote.log_part import LogPart, local_parts
from kafkalog_spark.log.remote.remote_dir_listing import RemoteDirListing
from kafkalog_spark.log.remote.remote_indexes import read_leader_epochs
from kafkalog_spark.log.remote.remote_metadata_reader import RemoteMetadata
from kafkalog_spark.log.remote.span_check import check_span
from kafkalog_spark.log.remote.stored_segment import StoredSegment
from kafkalog_spark.log.tiered.lineage import Lineage, exclusion_reason, newest_segment, without_empty_epochs
from kafkalog_spark.log.tiered.lineage_merge import LineageMerge, OffsetSpan, latest_topic_id, merge_lineage
from kafkalog_spark.log.tiered.object_keys import RemoteFile
from kafkalog_spark.log.tiered.tier_options import TierOptions
from kafkalog_spark.store.interface import FileFacts

_log = logging.getLogger(__name__)


class PartFinder:
    """Finds the current parts of one partition; call `find` again to refresh them.

    All methods raise NotALogDirectory if a directory cannot be listed or a file cannot be read, and the errors of
    `RemoteDirListing.fetch_metadata` and `read_leader_epochs`.

    Args:
        name: Topic-partition, for messages.
        remote: Remote directories, one for each topic ID.
        options: Options of tiered storage.
        metadata: Reader of `__remote_log_metadata`; None if the topic is not available.
        pass_over_damage: True to log damage and continue where possible (mode=DROPMALFORMED).
        remembered: Segments whose metadata is already known.

    Attributes:
        merged: Result of the merge if the last `find` used metadata; None if it used names.
    """

    def __init__(
        self,
        name: str,
        remote: Sequence[RemoteDir],
        options: TierOptions,
        metadata: RemoteMetadata | None,
        *,
        pass_over_damage: bool,
        remembered: Iterable[StoredSegment] = (),
    ) -> None:
        self.merged: LineageMerge | None = None
        self._name = name
        self._options = options
        self._metadata = metadata
        remembered = list(remembered)
        self._listings = [
            RemoteDirListing(remote_dir, options, pass_over_damage=pass_over_damage, remembered=remembered)
            for remote_dir in remote
        ]
        self._lineage: Lineage = []
        self._names_suffice = True
        self._pass_over_damage = pass_over_damage
        self._checked: dict[uuid.UUID, tuple[StoredSegment, StoredSegment | None]] = {}
        """Segment and result of `check_span`, by segment ID."""

    @property
    def exists(self) -> bool:
        """True if any remote directory existed at the last listing."""
        return any(listing.exists for listing in self._listings)

    @property
    def listed(self) -> tuple[list[str], Mapping[str, FileFacts]]:
        """Names and facts of the files in the first remote directory."""
        first = self._listings[0].listing
        return first.names, first.files

    def find(
        self, local: PartitionLog | None, log_start: int | None, *, refresh_metadata: bool = False
    ) -> list[LogPart]:
        """List the directories, and return the current parts of the log.

        Args:
            local: The local log; None if there is none.
            log_start: Checkpointed log start offset; None if unknown.
            refresh_metadata: True to read the new events of `__remote_log_metadata`.
        """
        live_topic_id = local.location.topic_id() if local is not None else None
        pending = self._list_segments(local, live_topic_id, refresh_metadata=refresh_metadata, log_start=log_start)
        parts = self._parts_by_name(pending, local, log_start) if self._names_suffice else None
        return self._parts_by_metadata(pending, local, live_topic_id, log_start) if parts is None else parts

    def merge(self, local: PartitionLog | None) -> LineageMerge:
        """Merge all complete segments by their metadata, including those whose offsets the local log contains."""
        live_topic_id = local.location.topic_id() if local is not None else None
        checkpointed = local.hints.log_start if local is not None else None
        pending = self._list_segments(local, None, refresh_metadata=False, include_local=True, log_start=checkpointed)
        self._parts_by_metadata(pending, local, live_topic_id, local.log_start_offset if local is not None else None)
        assert self.merged is not None
        return self.merged

    def fetch_checked(self, part: LogPart, following: LogPart | None, local: PartitionLog | None) -> StoredSegment:
        """Fetch the metadata of a pending part's segment, and check what `_parts_by_name` assumed about it.

        Args:
            part: The part.
            following: The next part; None for the last one.
            local: The local log; None if there is none.

        Raises:
            FileNotFoundError: If the segment was deleted, or if an assumption is wrong. Call `find` again in both
                cases. After a wrong assumption, it uses metadata from then on.
        """
        (stored,) = self.fetch_metadata([part])
        if stored is None:
            raise FileNotFoundError(errno.ENOENT, "the segment was deleted", part.remote_path)
        until = stored.segment.until
        fits = until == part.until
        if following is not None and following.is_local:
            fits = until >= part.until and (local is None or until <= local.segments[-1].base_offset)
        if not fits or exclusion_reason(stored.segment, self._lineage) is not None:
            self._names_suffice = False
            raise FileNotFoundError(
                errno.ENOENT, "the segment does not end where the next one begins", part.remote_path
            )
        if until != part.until and self._checked_span(stored, part.until) is not stored:
            self._names_suffice = False
            raise FileNotFoundError(errno.ENOENT, "the segment does not contain its offsets", part.remote_path)
        return stored

    def fetch_metadata(self, pending: Sequence[LogPart]) -> list[StoredSegment | None]:
        """Fetch the metadata of the segments of pending parts; None for a segment that was deleted since it was listed.

        The segments of one directory are fetched with concurrent requests.
        """
        stored: list[StoredSegment | None] = []
        for listing in self._listings:
            try:
                stored += listing.fetch_metadata(
                    [part.objects for part in pending if part.listing is listing and part.objects]
                )
            except OSError as error:
                raise self._unreadable_error(listing, error) from error
        return stored

    def _list_segments(
        self,
        local: PartitionLog | None,
        topic_id: uuid.UUID | None,
        *,
        refresh_metadata: bool,
        include_local: bool = False,
        log_start: int | None = None,
    ) -> list[LogPart]:
        """List the remote directories, and return a pending part for each complete segment, by start offset.

        Args:
            local: The local log; None if there is none.
            topic_id: Skip the directories of other topic IDs; None lists all.
            refresh_metadata: True to read the new events of `__remote_log_metadata`.
            include_local: True to include segments whose offsets the local log contains.
            log_start: Checkpointed log start offset; None if unknown.
        """
        local_start = local.segments[0].base_offset if local is not None else None
        all_is_local = local_start is not None and local_start <= (log_start or 0)
        below = None if include_local else local_start
        pending: list[LogPart] = []
        for listing in self._listings:
            if topic_id is not None and listing.remote_dir.partition.topic_id != topic_id:
                continue
            if all_is_local and not include_local and listing.remote_dir.tier_root is not None:
                continue  # one broker copies the segments and writes the checkpoint, so the checkpoint is correct
            states = (
                None
                if self._metadata is None
                else self._metadata.states_of(listing.remote_dir.partition, refresh_metadata=refresh_metadata)
            )
            may_be_unused = all_is_local and (states is None or not states.readable)
            try:
                for objects in listing.list_segments(states, below=below, may_be_unused=may_be_unused):
                    start = objects.start_offset
                    files = SegmentFiles(start, objects.objects[RemoteFile.LOG])
                    pending.append(LogPart(start, MAX_INT64, files, None, {}, listing=listing, objects=objects))
            except OSError as error:
                raise self._unreadable_error(listing, error) from error
            except KafkalogError as error:
                raise error.at(topic_partition=self._name) from None
        return sorted(pending, key=lambda part: part.start)

    def _parts_by_name(
        self, pending: Sequence[LogPart], local: PartitionLog | None, log_start: int | None
    ) -> list[LogPart] | None:
        """Return the parts by file names. `fetch_checked` checks each part before it is read.

        Returns:
            None if names do not suffice: two segments begin at the same offset or have different topic IDs, or the last
            one does not belong to the log.
        """
        starts = [part.start for part in pending]
        if len(set(starts)) < len(pending) or len({id(part.listing) for part in pending}) > 1:
            return None
        last = self.fetch_metadata(pending[-1:])[0] if pending and local is None else None
        self._lineage = self._lineage_of(local, [] if last is None else [last])
        if pending and (not self._lineage or (local is None and last is None)):
            return None
        if last is not None and exclusion_reason(last.segment, self._lineage) is not None:
            return None
        self.merged = None
        lowest_offset = max(log_start or 0, self._lineage[0].start_offset if self._lineage else 0)
        if local is not None:
            end = local.segments[0].base_offset
        else:
            end = last.segment.until if last is not None else 0
        parts = [
            part._replace(start=start, until=until, files=replace(part.files, base_offset=start))
            for part, start, until in zip(
                pending, (max(start, lowest_offset) for start in starts), [*starts, end][1:], strict=True
            )
            if until > lowest_offset
        ]
        return parts if local is None else [*parts, *local_parts(local, lowest_offset, MAX_INT64)]

    def _parts_by_metadata(
        self,
        pending: Sequence[LogPart],
        local: PartitionLog | None,
        live_topic_id: uuid.UUID | None,
        log_start: int | None,
    ) -> list[LogPart]:
        """Fetch the metadata of all segments, and return the parts by the rules of KIP-405."""
        fetched = self.fetch_metadata(pending)
        segments = {stored.segment.segment_id: stored for stored in fetched if stored is not None}
        self._lineage = self._lineage_of(local, list(segments.values()))
        segments = self._checked_spans(segments, local, live_topic_id)
        remote = [stored.segment for stored in segments.values()]
        spans: list[OffsetSpan] = []
        log_end = None
        if local is not None:
            bases = [segment.base_offset for segment in local.segments]
            spans = [OffsetSpan(*span) for span in pairwise([*bases, MAX_INT64])]
            if max((segment.until for segment in remote), default=0) > bases[-1]:
                log_end = local.log_end_offset  # excludes remote segments that end at or after it
        self.merged = merge_lineage(
            remote,
            self._lineage,
            local=spans,
            topic_id=live_topic_id or latest_topic_id(remote),
            log_start=log_start,
            log_end=log_end,
        )
        for hole in self.merged.holes:
            _log.warning("%s: no segment has the offsets [%d, %d)", self._name, hole.start, hole.until)
        parts = []
        for source, start, until in self.merged.pieces:
            if source is not None:
                stored = segments[source.segment_id]
                parts.append(LogPart(start, until, replace(stored.files, base_offset=start), None, {}, stored))
            elif local is not None:
                parts += local_parts(local, start, until)
        return parts

    def _checked_spans(
        self, segments: Mapping[uuid.UUID, StoredSegment], local: PartitionLog | None, live_topic_id: uuid.UUID | None
    ) -> dict[uuid.UUID, StoredSegment]:
        """Check each segment of the log that overlaps the next one, and replace it by its `_checked_span`."""
        topic_id = live_topic_id or latest_topic_id(stored.segment for stored in segments.values())
        of_log = [
            stored.segment
            for stored in segments.values()
            if stored.segment.partition.topic_id == topic_id and exclusion_reason(stored.segment, self._lineage) is None
        ]
        starts = [segment.start_offset for segment in of_log]
        if local is not None:
            starts.append(local.segments[0].base_offset)
        starts.sort()
        checked: dict[uuid.UUID, StoredSegment | None] = dict(segments)
        for segment in of_log:
            index = bisect_right(starts, segment.start_offset)
            if index < len(starts) and starts[index] < segment.until:
                checked[segment.segment_id] = self._checked_span(segments[segment.segment_id], starts[index])
        return {segment_id: stored for segment_id, stored in checked.items() if stored is not None}

    def _checked_span(self, stored: StoredSegment, following: int) -> StoredSegment | None:
        """Return the result of `check_span`, cached while the segment does not change; None if it was deleted."""
        segment_id = stored.segment.segment_id
        cached = self._checked.get(segment_id)
        if cached is not None and cached[0] is stored:
            return cached[1]
        try:
            checked = check_span(
                stored, following, self._options.keys, self._name, pass_over_damage=self._pass_over_damage
            )
        except FileNotFoundError:
            return None
        self._checked[segment_id] = stored, checked
        return checked

    def _unreadable_error(self, listing: RemoteDirListing, error: OSError) -> NotALogDirectory:
        return NotALogDirectory(
            f"the partition's remote segments cannot be read: {error.strerror}",
            topic_partition=self._name,
            path=error.filename or listing.remote_dir.directory,
            hint="layout=broker reads what is on disk alone" if listing.remote_dir.tier_root is not None else None,
        )

    def _lineage_of(self, local: PartitionLog | None, fetched: Sequence[StoredSegment]) -> Lineage:
        """Return the lineage of the local log; without one, that of the newest segment."""
        if local is not None:
            epochs = leader_epochs(local.store, local.directory)
            if epochs:
                return without_empty_epochs(epochs)
        topic_id = latest_topic_id(stored.segment for stored in fetched)
        of_topic = {
            stored.segment.segment_id: stored for stored in fetched if stored.segment.partition.topic_id == topic_id
        }
        last = newest_segment(stored.segment for stored in of_topic.values())
        if last is None:
            return []
        source = of_topic[last.segment_id]
        try:
            return without_empty_epochs(read_leader_epochs(source, self._options.keys))
        except KafkalogError as error:
            raise error.at(topic_partition=self._name, path=source.log_path) from None
        except OSError as error:
            raise NotALogDirectory(
                f"the segment's leader epochs cannot be read: {error.strerror}",
                topic_partition=self._name,
                path=source.log_path,
            ) from error
