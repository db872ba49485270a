"""Find the parts of a partition's log in its local directory and its remote directories.

There are two ways:

1. By names (`_parts_by_name`). File names have start offsets, and nearly always each remote segment ends where the next
   one begins. A segment's metadata is fetched (a small request) when the segment is to be read, and proves the
   assumption: the segment belongs to the log's lineage, and ends where the next one begins.
2. By metadata (`_parts_by_metadata`), if that assumption is wrong, as after leader changes that copied offsets twice.
   The metadata of all segments is fetched, and the rules of KIP-405 decide (lineage_merge.py).

In Aiven's layout, a manifest has the metadata of a segment. LocalTieredStorage writes no manifests: the metadata is in
`__remote_log_metadata`, if that topic was opened, and otherwise derived from the files of the segment.
"""

from __future__ import annotations

import errno
import logging
import uuid
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from kafkalog_spark.errors import (
    CorruptLog,
    CorruptManifest,
    KafkalogError,
    NotALogDirectory,
)
from kafkalog_spark.format.layout import MAX_INT64
from kafkalog_spark.format.names import SegmentFiles
from kafkalog_spark.log.read.discovery import RemoteDir
from kafkalog_spark.log.read.log_end import find_log_end
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.segment_lookup import locate
from kafkalog_spark.log.read.state_files import leader_epochs
from kafkalog_spark.log.remote.log_part import LogPart, local_parts
from kafkalog_spark.log.remote.remote_dir_listing import RemoteDirListing
from kafkalog_spark.log.remote.remote_indexes import read_leader_epochs
from kafkalog_spark.log.remote.remote_metadata_reader import RemoteMetadata
from kafkalog_spark.log.remote.remote_segment_file import open_remote
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
    `RemoteDirListing.held` and `read_leader_epochs`.

    Args:
        name: Topic-partition, for messages.
        remote: Remote directories, one for each topic id.
        options: Options for remote segments.
        metadata: `__remote_log_metadata`, if it was opened.
        pass_over_damage: mode=DROPMALFORMED: log damage, and continue, where that is possible.
        remembered: Segments whose metadata is already known.

    Attributes:
        merged: Result of the merge if the last `find` was by metadata; None if it was by names.
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
        self._spans: dict[uuid.UUID, tuple[StoredSegment, StoredSegment | None]] = {}
        """Argument and result of `_checked_span` by segment id."""

    @property
    def exists(self) -> bool:
        """True if any remote directory existed at the last look."""
        return any(listing.exists for listing in self._listings)

    @property
    def listed(self) -> tuple[list[str], Mapping[str, FileFacts]]:
        """Names and facts of the files in the first remote directory."""
        first = self._listings[0].listing
        return first.names, first.files

    def find(self, local: PartitionLog | None, log_start: int | None, *, again: bool = False) -> list[LogPart]:
        """List the directories, and return the current parts of the log.

        Args:
            local: The local log; None if there is none.
            log_start: Log start offset in the checkpoint; None if unknown.
            again: Also read the new events in `__remote_log_metadata`.
        """
        live_topic_id = local.location.topic_id() if local is not None else None
        pending = self._look(local, live_topic_id, again=again, log_start=log_start)
        parts = self._parts_by_name(pending, local, log_start) if self._names_suffice else None
        return self._parts_by_metadata(pending, local, live_topic_id, log_start) if parts is None else parts

    def merge(self, local: PartitionLog | None) -> LineageMerge:
        """Merge all complete segments, including those that the local log covers, by their metadata."""
        live_topic_id = local.location.topic_id() if local is not None else None
        checkpointed = local.hints.log_start if local is not None else None
        pending = self._look(local, None, again=False, all_segments=True, log_start=checkpointed)
        self._parts_by_metadata(pending, local, live_topic_id, local.log_start_offset if local is not None else None)
        assert self.merged is not None
        return self.merged

    def hold(self, part: LogPart, following: LogPart | None, local: PartitionLog | None) -> StoredSegment:
        """Fetch the metadata of a pending part's segment, and check the assumptions of `_parts_by_name`.

        Args:
            part: The part.
            following: The next part; None for the last one.
            local: The local log; None if there is none.

        Raises:
            FileNotFoundError: If the segment was deleted, or if an assumption is wrong. In both cases call `find`
                again; in the second case it finds the parts by metadata from then on.
        """
        (held,) = self.fetch_metadata([part])
        if held is None:
            raise FileNotFoundError(errno.ENOENT, "the segment was deleted", part.remote_path)
        until = held.segment.until
        fits = until == part.until
        if following is not None and following.is_local:
            fits = until >= part.until and (local is None or until <= local.segments[-1].base_offset)
        if not fits or exclusion_reason(held.segment, self._lineage) is not None:
            self._names_suffice = False
            raise FileNotFoundError(
                errno.ENOENT, "the segment does not end where the next one begins", part.remote_path
            )
        if until != part.until and self._checked_span(held, part.until) is not held:
            self._names_suffice = False
            raise FileNotFoundError(errno.ENOENT, "the segment does not contain its offsets", part.remote_path)
        return held

    def fetch_metadata(self, pending: Sequence[LogPart]) -> list[StoredSegment | None]:
        """Fetch the metadata of the segments of pending parts, several at once; None for one deleted meanwhile."""
        held: list[StoredSegment | None] = []
        for listing in self._listings:
            try:
                held += listing.held([part.objects for part in pending if part.listing is listing and part.objects])
            except OSError as error:
                raise self._unreadable(listing, error) from error
        return held

    def _look(
        self,
        local: PartitionLog | None,
        topic_id: uuid.UUID | None,
        *,
        again: bool,
        all_segments: bool = False,
        log_start: int | None = None,
    ) -> list[LogPart]:
        """List the remote directories, and return a pending part for each complete segment, by start offset.

        Args:
            local: The local log; None if there is none.
            topic_id: Skip the directories of other topic ids; None lists all.
            again: Also read the new events in `__remote_log_metadata`.
            all_segments: Include segments that the local log covers.
            log_start: Log start offset in the checkpoint; None if unknown.
        """
        local_start = local.segments[0].base_offset if local is not None else None
        all_is_local = local_start is not None and local_start <= (log_start or 0)
        below = None if all_segments else local_start
        pending: list[LogPart] = []
        for listing in self._listings:
            if topic_id is not None and listing.remote_dir.partition.topic_id != topic_id:
                continue
            if all_is_local and not all_segments and listing.remote_dir.tier_root is not None:
                continue  # the broker that copies the segments also writes the checkpoint, so it can be trusted
            known = None if self._metadata is None else self._metadata.of(listing.remote_dir.partition, again=again)
            may_be_unused = all_is_local and (known is None or not known.readable)
            try:
                for found in listing.look(known, below=below, may_be_unused=may_be_unused):
                    start = found.start_offset
                    files = SegmentFiles(start, found.objects[RemoteFile.LOG])
                    pending.append(LogPart(start, MAX_INT64, files, None, {}, listing=listing, objects=found))
            except OSError as error:
                raise self._unreadable(listing, error) from error
            except KafkalogError as error:
                raise error.at(topic_partition=self._name) from None
        return sorted(pending, key=lambda part: part.start)

    def _parts_by_name(
        self, pending: Sequence[LogPart], local: PartitionLog | None, log_start: int | None
    ) -> list[LogPart] | None:
        """Return the parts by file names only; `hold` checks each part before it is read.

        Returns None if names do not suffice: two segments begin at the same offset, or have different topic ids, or the
        last one does not belong to the log.
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
        floor = max(log_start or 0, self._lineage[0].start_offset if self._lineage else 0)
        if local is not None:
            end = local.segments[0].base_offset
        else:
            end = last.segment.until if last is not None else 0
        parts = [
            part._replace(start=start, until=until, files=replace(part.files, base_offset=start))
            for part, start, until in zip(
                pending, (max(start, floor) for start in starts), [*starts, end][1:], strict=True
            )
            if until > floor
        ]
        return parts if local is None else [*parts, *local_parts(local, floor, MAX_INT64)]

    def _parts_by_metadata(
        self,
        pending: Sequence[LogPart],
        local: PartitionLog | None,
        live_topic_id: uuid.UUID | None,
        log_start: int | None,
    ) -> list[LogPart]:
        """Fetch the metadata of all segments, and return the parts by the rules of KIP-405."""
        held = {one.segment.segment_id: one for one in self.fetch_metadata(pending) if one is not None}
        self._lineage = self._lineage_of(local, list(held.values()))
        held = self._checked_spans(held, local, live_topic_id)
        remote = [one.segment for one in held.values()]
        spans: list[OffsetSpan] = []
        log_end = None
        if local is not None:
            bases = [segment.base_offset for segment in local.segments]
            spans = [OffsetSpan(*span) for span in pairwise([*bases, MAX_INT64])]
            if max((segment.until for segment in remote), default=0) > bases[-1]:
                log_end = local.log_end_offset  # a remote segment that reaches it is excluded
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
                stored = held[source.segment_id]
                parts.append(LogPart(start, until, replace(stored.files, base_offset=start), None, {}, stored))
            elif local is not None:
                parts += local_parts(local, start, until)
        return parts

    def _checked_spans(
        self, held: Mapping[uuid.UUID, StoredSegment], local: PartitionLog | None, live_topic_id: uuid.UUID | None
    ) -> dict[uuid.UUID, StoredSegment]:
        """Replace each segment in whose offsets another segment of the log begins by its `_checked_span`."""
        topic = live_topic_id or latest_topic_id(one.segment for one in held.values())
        of_log = [
            one.segment
            for one in held.values()
            if one.segment.partition.topic_id == topic and exclusion_reason(one.segment, self._lineage) is None
        ]
        starts = [segment.start_offset for segment in of_log]
        if local is not None:
            starts.append(local.segments[0].base_offset)
        starts.sort()
        checked: dict[uuid.UUID, StoredSegment | None] = dict(held)
        for segment in of_log:
            slot = bisect_right(starts, segment.start_offset)
            if slot < len(starts) and starts[slot] < segment.until:
                checked[segment.segment_id] = self._checked_span(held[segment.segment_id], starts[slot])
        return {segment_id: one for segment_id, one in checked.items() if one is not None}

    def _checked_span(self, held: StoredSegment, following: int) -> StoredSegment | None:
        """Check that a segment's batches contain `following`, where another segment begins, and end at its end offset.

        Segments overlap after changes of leaders. They also do if a manifest's endOffset is too large, if a batch has a
        wrong offset, or if another segment's .log was copied over this one; then this one would hide records.

        Returns:
            The segment; None if it was deleted meanwhile. If damage is passed over, the segment ends before the gap at
            `following`, or after its last batch; None if it begins with that gap.

        Raises:
            CorruptLog: If no batch contains `following`.
            CorruptManifest: If the last batch does not end with the segment's end offset.
        """
        segment = held.segment
        known = self._spans.get(segment.segment_id)
        if known is not None and known[0] is held:
            return known[1]
        try:
            with open_remote(held, self._options.keys, self._name, pass_over_damage=self._pass_over_damage) as file:
                file.next_base_offset = None
                end = find_log_end(file).offset
                gap = _gap_at(file, following)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise NotALogDirectory(
                f"the segment cannot be read: {error.strerror}", topic_partition=self._name, path=held.log_path
            ) from error
        wrong: CorruptLog | None = None
        checked: StoredSegment | None = held
        if gap is not None:
            begin, until = gap
            is_empty = begin == segment.start_offset
            checked = None if is_empty else replace(held, segment=replace(segment, end_offset=begin - 1))
            wrong = CorruptLog(
                f"no batch has offsets {begin} to {until - 1}, expected some: the next segment begins at {following}",
                topic_partition=self._name,
                path=held.log_path,
                hint="was another segment's .log copied over this one?" if is_empty else "a batch has a wrong offset",
            )
        elif end != segment.until:
            checked = replace(held, segment=replace(segment, end_offset=end - 1))
            source, file_of_source = "__remote_log_metadata", RemoteFile.LOG
            if held.manifest is not None:
                source, file_of_source = "the manifest", RemoteFile.MANIFEST
            wrong = CorruptManifest(
                f"{source} says that the segment ends with offset {segment.end_offset}, but its last batch ends with "
                f"{end - 1}, and the next segment begins at {following}",
                topic_partition=self._name,
                path=held.path_of(file_of_source),
            )
        if wrong is not None:
            if not self._pass_over_damage:
                raise wrong
            _log.warning("mode=DROPMALFORMED: %s", wrong)
        self._spans[segment.segment_id] = held, checked
        return checked

    def _unreadable(self, listing: RemoteDirListing, error: OSError) -> NotALogDirectory:
        return NotALogDirectory(
            f"the partition's remote segments cannot be read: {error.strerror}",
            topic_partition=self._name,
            path=error.filename or listing.remote_dir.directory,
            hint="layout=broker reads what is on disk alone" if listing.remote_dir.tier_root is not None else None,
        )

    def _lineage_of(self, local: PartitionLog | None, held: Sequence[StoredSegment]) -> Lineage:
        """Return the lineage of the local log; without one, that of the newest segment."""
        if local is not None:
            epochs = leader_epochs(local.store, local.directory)
            if epochs:
                return without_empty_epochs(epochs)
        topic = latest_topic_id(one.segment for one in held)
        of_topic = {one.segment.segment_id: one for one in held if one.segment.partition.topic_id == topic}
        last = newest_segment(one.segment for one in of_topic.values())
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


def _gap_at(file: SegmentFile, offset: int) -> tuple[int, int] | None:
    """Return the gap [begin, until) between batches that contains `offset` or ends just before it; None without one."""
    position = locate(file, offset - 1)
    begin = file.base_offset if position == file.begin else None
    for header in file.headers(position):
        if header.last_offset >= offset:
            # The first offset of a wrapper (v0, v1) is not known.
            is_gap = header.magic == 2 and begin is not None and begin < header.base_offset >= offset
            return (begin, header.base_offset) if is_gap and begin is not None else None
        begin = header.last_offset + 1
    return None
