"""Listing of the remote directory of a partition, and metadata of its segments."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from dataclasses import replace

from kafkalog_spark.errors import (
    CorruptManifest,
    KafkalogError,
)
from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.log.read.discovery import RemoteDir
from kafkalog_spark.log.read.log_end import find_log_end
from kafkalog_spark.log.remote.remote_indexes import read_leader_epochs
from kafkalog_spark.log.remote.remote_segment_file import open_remote
from kafkalog_spark.log.remote.stored_segment import StoredSegment
from kafkalog_spark.log.tiered.lineage import (
    without_empty_epochs,
)
from kafkalog_spark.log.tiered.manifest import MAX_MANIFEST_SIZE, SegmentManifest, parse_manifest
from kafkalog_spark.log.tiered.object_keys import Layout, RemoteFile, RemoteObjects, group_by_segment
from kafkalog_spark.log.tiered.remote_log_state import SegmentStates
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment
from kafkalog_spark.log.tiered.tier_options import TierOptions
from kafkalog_spark.store.interface import Listing
from kafkalog_spark.store.parallel import in_parallel


class RemoteDirListing:
    """Listing of a remote directory, which can be refreshed. Metadata of a segment is cached while its objects stay the
    same.

    Args:
        remote_dir: The directory.
        options: Options for remote segments.
        pass_over_damage: mode=DROPMALFORMED: log damage, and continue, where that is possible.
        remembered: Segments whose metadata is already known, perhaps of other directories as well.

    Attributes:
        exists: True if the directory existed at the last look.
        listing: Result of the last look; empty before.
    """

    def __init__(
        self, remote_dir: RemoteDir, options: TierOptions, *, pass_over_damage: bool = False,
        remembered: Iterable[StoredSegment] = (),
    ) -> None:  # fmt: skip
        self.remote_dir = remote_dir
        self._options = options
        self._pass_over_damage = pass_over_damage
        self._held = {held.segment.segment_id: held for held in remembered if held.remote_dir == remote_dir}
        self._known: SegmentStates | None = None
        self._topic_partition = f"{remote_dir.partition.topic}-{remote_dir.partition.partition}"
        self.exists, self.listing = True, Listing([], lambda _: False)

    def look(
        self, known: SegmentStates | None = None, *, below: int | None = None, may_be_unused: bool = False
    ) -> list[RemoteObjects]:
        """List the complete segments, in the order of their start offsets, with one LIST.

        Args:
            known: State of the partition's segments by `__remote_log_metadata`; None if it has no events of them.
            below: Return only segments that begin before this offset.
            may_be_unused: Accept that the root of the tier is missing: a broker creates it when it copies its first
                segment.

        Raises:
            FileNotFoundError: If the root of the tier is missing although it must exist.
            OSError: If the directory cannot be listed.
        """
        self._known = known
        try:
            self.exists, self.listing = True, self.remote_dir.store.list(self.remote_dir.directory)
        except FileNotFoundError:
            self.exists, self.listing = False, Listing([], lambda _: False)
            root = self.remote_dir.tier_root
            if root is not None and not may_be_unused and not self.remote_dir.store.exists(root):
                missing = "it does not exist, but the log directory names it as its remote storage"
                raise FileNotFoundError(errno.ENOENT, missing, root) from None
            return []
        return [
            found
            for found in group_by_segment(self.listing.names, self.remote_dir.layout, self.remote_dir.partition)
            if not found.missing_files
            and (below is None or found.start_offset < below)
            # A segment without an event in the topic is used: the copy of the topic may be older than the files.
            and (known is None or found.segment_id not in known.refused)
        ]

    def held(self, wanted: Sequence[RemoteObjects]) -> list[StoredSegment | None]:
        """Return the metadata of segments of the last look, fetched if needed; None for one that was deleted meanwhile.

        Raises:
            OSError: If a manifest cannot be read.
            CorruptManifest: If a manifest cannot be parsed.
            KafkalogError: Any error of `open_remote`.
        """
        found = in_parallel(self._held_segment, wanted, lambda _: self.remote_dir.store.remote)
        self._held.update({held.segment.segment_id: held for held in found if held is not None})
        return found

    def _held_segment(self, found: RemoteObjects) -> StoredSegment | None:
        objects = {file: (name, self.listing.files.get(name)) for file, name in found.objects.items()}
        before = self._held.get(found.segment_id)
        if before is not None and before.objects == objects:
            return before
        segment = None if self._known is None else self._known.readable.get(found.segment_id)
        try:
            manifest = self._manifest(found) if found.layout is Layout.AIVEN else None
            if manifest is not None and manifest.segment is not None:
                segment = manifest.segment
            if segment is not None:
                return StoredSegment(segment, self.remote_dir, objects, manifest)
            start = found.start_offset
            named = RemoteSegment(found.partition, found.segment_id, start, start - 1, (), -1, -1, -1, -1)
            return self._described(StoredSegment(named, self.remote_dir, objects, manifest))
        except FileNotFoundError:
            return None

    def _manifest(self, found: RemoteObjects) -> SegmentManifest:
        path = f"{self.remote_dir.directory}/{found.objects[RemoteFile.MANIFEST]}"
        try:
            manifest = parse_manifest(self.remote_dir.store.read_all(path, MAX_MANIFEST_SIZE))
            manifest.check_segment(found.partition, found.start_offset, found.segment_id)
            is_new = manifest.segment is not None  # manifests told of the segment before they told of its indexes
            if is_new and manifest.indexes is None and RemoteFile.OFFSET_INDEX not in found.objects:
                raise CorruptManifest(
                    "segmentIndexes is missing, and no .index object lies beside the manifest, as before October 2023",
                    hint="the manifest is damaged, or the .index object is lost",
                )
        except KafkalogError as error:
            raise error.at(topic_partition=self._topic_partition, path=path) from None
        return manifest

    def _described(self, held: StoredSegment) -> StoredSegment:
        """Facts that no manifest gives: by the last batch, the checkpoint of leader epochs, the time index."""
        keys = self._options.keys
        with open_remote(held, keys, self._topic_partition, pass_over_damage=self._pass_over_damage) as file:
            file.next_base_offset = None
            end = find_log_end(file).offset
            times, size = file.time_index, file.size
        epochs = epochs_within(read_leader_epochs(held, keys), held.segment.start_offset, end)
        largest = times.last.timestamp if times.whole and times.last is not None else -1
        described = replace(
            held.segment, end_offset=end - 1, leader_epochs=epochs, max_timestamp=largest, event_timestamp=largest,
            size=size,
        )  # fmt: skip
        return replace(held, segment=described)


def epochs_within(epochs: list[EpochEntry], start: int, until: int) -> tuple[EpochEntry, ...]:
    """Leader epochs with records in [start, until), the first as if it began there: RemoteLogManager's
    segmentLeaderEpochs."""
    kept: list[EpochEntry] = []
    for entry in without_empty_epochs(epochs):
        if entry.start_offset >= until:
            break
        if entry.start_offset <= start:
            kept = [EpochEntry(entry.epoch, start)]
        else:
            kept.append(entry)
    return tuple(kept)
