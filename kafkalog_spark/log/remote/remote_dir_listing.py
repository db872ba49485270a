"""Lists the remote directory of a partition, and fetches the metadata of its segments."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from dataclasses import replace

from kafkalog_spark.errors import CorruptManifest, KafkalogError
from kafkalog_spark.log.read.discovery import RemoteDir
from kafkalog_spark.log.read.log_end import find_log_end
from kafkalog_spark.log.remote.remote_indexes import read_leader_epochs
from kafkalog_spark.log.remote.remote_segment_file import open_remote
from kafkalog_spark.log.remote.stored_segment import StoredSegment
from kafkalog_spark.log.tiered.lineage import epochs_within
from kafkalog_spark.log.tiered.manifest import MAX_MANIFEST_SIZE, SegmentManifest, parse_manifest
from kafkalog_spark.log.tiered.object_keys import Layout, RemoteFile, RemoteObjects, group_by_segment
from kafkalog_spark.log.tiered.remote_log_state import SegmentStates
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment
from kafkalog_spark.log.tiered.tier_options import TierOptions
from kafkalog_spark.store.interface import Listing
from kafkalog_spark.store.parallel import in_parallel


class RemoteDirListing:
    """Listing of a remote directory, with the metadata of its segments.

    The metadata of a segment is cached until its objects change.

    Args:
        remote_dir: The directory.
        options: Options of tiered storage.
        pass_over_damage: True to log damage and continue where possible (mode=DROPMALFORMED).
        remembered: Segments whose metadata is already known. Those of other directories are ignored.

    Attributes:
        exists: True if the directory existed at the last listing.
        listing: Result of the last listing; empty before the first one.
    """

    def __init__(
        self, remote_dir: RemoteDir, options: TierOptions, *, pass_over_damage: bool = False,
        remembered: Iterable[StoredSegment] = (),
    ) -> None:  # fmt: skip
        self.remote_dir = remote_dir
        self._options = options
        self._pass_over_damage = pass_over_damage
        self._segments = {stored.segment.segment_id: stored for stored in remembered if stored.remote_dir == remote_dir}
        self._states: SegmentStates | None = None
        self._topic_partition = f"{remote_dir.partition.topic}-{remote_dir.partition.partition}"
        self.exists, self.listing = True, Listing([], lambda _: False)

    def list_segments(
        self, states: SegmentStates | None = None, *, below: int | None = None, may_be_unused: bool = False
    ) -> list[RemoteObjects]:
        """List the complete segments, in order of start offsets, with one LIST request.

        Args:
            states: States of the partition's segments in `__remote_log_metadata`; None if it has no events about them.
            below: Return only segments that begin before this offset.
            may_be_unused: True if the root of the tier may be missing: a broker creates it when it copies its first
                segment.

        Raises:
            FileNotFoundError: If the root of the tier is missing although it must exist.
            OSError: If the directory cannot be listed.
        """
        self._states = states
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
            segment
            for segment in group_by_segment(self.listing.names, self.remote_dir.layout, self.remote_dir.partition)
            if not segment.missing_files
            and (below is None or segment.start_offset < below)
            # A segment without events is used: the opened replica of the topic may be older than the objects.
            and (states is None or segment.segment_id not in states.refused)
        ]

    def fetch_metadata(self, segments: Sequence[RemoteObjects]) -> list[StoredSegment | None]:
        """Return listed segments with their metadata, with concurrent requests; None for a segment deleted since.

        Raises:
            OSError: If a manifest cannot be read.
            CorruptManifest: If a manifest cannot be parsed.
            KafkalogError: Any error of `open_remote`.
        """
        fetched = in_parallel(self._fetch_segment, segments, lambda _: self.remote_dir.store.is_remote)
        self._segments.update({stored.segment.segment_id: stored for stored in fetched if stored is not None})
        return fetched

    def _fetch_segment(self, listed: RemoteObjects) -> StoredSegment | None:
        objects = {file: (name, self.listing.files.get(name)) for file, name in listed.objects.items()}
        cached = self._segments.get(listed.segment_id)
        if cached is not None and cached.objects == objects:
            return cached
        metadata = None if self._states is None else self._states.readable.get(listed.segment_id)
        try:
            manifest = self._read_manifest(listed) if listed.layout is Layout.AIVEN else None
            if manifest is not None and manifest.segment is not None:
                metadata = manifest.segment
            if metadata is not None:
                return StoredSegment(metadata, self.remote_dir, objects, manifest)
            start = listed.start_offset
            incomplete = RemoteSegment(listed.partition, listed.segment_id, start, start - 1, (), -1, -1, -1, -1)
            return self._derive_metadata(StoredSegment(incomplete, self.remote_dir, objects, manifest))
        except FileNotFoundError:
            return None

    def _read_manifest(self, listed: RemoteObjects) -> SegmentManifest:
        path = f"{self.remote_dir.directory}/{listed.objects[RemoteFile.MANIFEST]}"
        try:
            manifest = parse_manifest(self.remote_dir.store.read_all(path, MAX_MANIFEST_SIZE))
            manifest.check_segment(listed.partition, listed.start_offset, listed.segment_id)
            # Manifests have the metadata of the segment since September 2023, and the ranges of its indexes since
            # October 2023. A manifest without ranges is valid only if each index has an object of its own.
            has_metadata = manifest.segment is not None
            if has_metadata and manifest.indexes is None and RemoteFile.OFFSET_INDEX not in listed.objects:
                raise CorruptManifest(
                    "segmentIndexes is missing, and there is no .index object beside the manifest",
                    hint="the manifest is damaged, or the .index object is lost",
                )
        except KafkalogError as error:
            raise error.at(topic_partition=self._topic_partition, path=path) from None
        return manifest

    def _derive_metadata(self, stored: StoredSegment) -> StoredSegment:
        """Return the segment with metadata from its last batch, its leader-epoch checkpoint and its time index."""
        keys = self._options.keys
        with open_remote(stored, keys, self._topic_partition, pass_over_damage=self._pass_over_damage) as file:
            file.next_base_offset = None
            end = find_log_end(file).offset
            times, size = file.time_index, file.size
        epochs = epochs_within(read_leader_epochs(stored, keys), stored.segment.start_offset, end)
        largest = times.last.timestamp if times.is_complete and times.last is not None else -1
        metadata = replace(
            stored.segment, end_offset=end - 1, leader_epochs=epochs, max_timestamp=largest, event_timestamp=largest,
            size=size,
        )  # fmt: skip
        return replace(stored, segment=metadata)
