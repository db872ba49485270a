"""The segments in a partition's remote directory: those that are wholly there, and what is known of each.

Of Aiven's layout a manifest says it all: one small request a segment, several at once. LocalTieredStorage writes none:
there `__remote_log_metadata` says it where that is among what was opened; else the files themselves are asked.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from kafkalog_spark.errors import CorruptManifest, CorruptRemoteMetadata, KafkalogError, UnsupportedFormat
from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.log.read.batch_search import find_log_end
from kafkalog_spark.log.read.discovery import RemoteDir, chosen_copy
from kafkalog_spark.log.read.partition_log import PartitionLocation
from kafkalog_spark.log.remote.remote_segment_file import StoredSegment, leader_epochs_of, open_remote
from kafkalog_spark.log.tiered.lineage import without_empty_epochs
from kafkalog_spark.log.tiered.manifest import MOST_OF_MANIFEST, SegmentManifest, parse_manifest
from kafkalog_spark.log.tiered.remote_log_metadata import RemoteLogState, SegmentStates, decode_event
from kafkalog_spark.log.tiered.remote_names import (
    Layout,
    RemoteFile,
    RemoteObjects,
    RemoteSegment,
    TopicIdPartition,
    remote_objects,
)
from kafkalog_spark.log.tiered.tier_options import TierOptions
from kafkalog_spark.store.interface import FileFacts, in_parallel

_log = logging.getLogger(__name__)


class RemoteMetadata:
    """The topic, read from its beginning once, and on from there when asked again. Threads share it; a pickle carries
    only where it lies. copies: of each of its partitions, the places where it lies."""

    def __init__(self, copies: Sequence[Sequence[PartitionLocation]]) -> None:
        self._copies = tuple(map(tuple, copies))
        self._lock = threading.Lock()
        self._state: RemoteLogState | None = None
        self._known: dict[TopicIdPartition, SegmentStates] = {}
        self._reached: dict[str, int] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteMetadata, (self._copies,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteMetadata) and self._copies == other._copies

    def __hash__(self) -> int:
        return hash(self._copies)

    def of(self, partition: TopicIdPartition, *, again: bool = False) -> SegmentStates | None:
        """None where the topic does not speak of the partition: its events may lie on brokers whose directories were
        not given. again: read on what was written since. Raises as opening and reading a partition does."""
        with self._lock:
            if self._state is None or again:
                self._read_on()
            return self._known.get(partition)

    def _read_on(self) -> None:
        from kafkalog_spark.log.decode.record_schema import ScanRequest
        from kafkalog_spark.log.read.partition_scan import scan_partition  # loads the kernels

        state = RemoteLogState() if self._state is None else self._state
        for copies in self._copies:
            chosen = chosen_copy(copies)
            if chosen is None:
                continue
            log = chosen[0].place.open()
            start = max(self._reached.get(log.name, 0), log.log_start_offset)
            end = log.log_end_offset
            for batch in scan_partition(
                log, start, end, ScanRequest(columns=("value",)), on_loss=partial(_log.warning, "%s")
            ):
                for value in batch.column(0).to_pylist():
                    if value is None:  # KIP-1266 gives keys to records, and so tombstones
                        continue
                    try:
                        state.take(decode_event(value))
                    except (CorruptRemoteMetadata, UnsupportedFormat) as error:
                        _log.warning("passed over: %s", error.at(topic_partition=log.name))
            self._reached[log.name] = end
        self._state = state
        self._known = state.by_partition()


class RemoteDirListing:
    """Listing of a remote directory that can be refreshed: facts of a segment are kept while its objects stay
    the same. remembered: segments that somebody else has learnt of."""

    def __init__(
        self, place: RemoteDir, options: TierOptions, *, pass_over_damage: bool = False,
        remembered: Iterable[StoredSegment] = (),
    ) -> None:  # fmt: skip
        self.place = place
        self._options = options
        self._pass_over_damage = pass_over_damage
        self._held = {held.segment.segment_id: held for held in remembered if held.place == place}
        self._known: SegmentStates | None = None
        self.names: list[str] = []
        self.facts: Mapping[str, FileFacts] = {}
        self.exists = True

    @property
    def topic_partition(self) -> str:
        return f"{self.place.topic}-{self.place.partition}"

    def look(self, known: SegmentStates | None = None, *, below: int | None = None) -> list[RemoteObjects]:
        """The segments that are wholly there now, by start offset: one LIST. known: what `__remote_log_metadata` says
        of the partition; below: only those that begin before this offset. Raises OSError."""
        self._known = known
        try:
            listing = self.place.store.list(self.place.directory)
        except FileNotFoundError:
            self.exists, self.names, self.facts = False, [], {}
            root = self.place.tier_root
            if root is not None and not self.place.store.exists(root):
                missing = "it is not there, and the log directory says that its segments are copied to it"
                raise FileNotFoundError(errno.ENOENT, missing, root) from None
            return []
        self.exists, self.names, self.facts = True, listing.names, listing.files
        return [
            found
            for found in remote_objects(listing.names, self.place.layout, self.place.topic_id_partition)
            if not found.missing
            and (below is None or found.start_offset < below)
            # without a record in the topic the files decide: the topic may be an older copy
            and (known is None or found.segment_id not in known.refused)
        ]

    def held(self, wanted: Sequence[RemoteObjects]) -> list[StoredSegment | None]:
        """Facts of these segments, fetched where needed; None for one that was deleted meanwhile. Raises OSError where
        a manifest cannot be read, CorruptManifest and the errors of `open_remote`."""
        found = in_parallel(self._held_segment, wanted, lambda _: self.place.store.remote)
        self._held.update({held.segment.segment_id: held for held in found if held is not None})
        return found

    def _held_segment(self, found: RemoteObjects) -> StoredSegment | None:
        objects = {file: (name, self.facts.get(name)) for file, name in found.objects.items()}
        before = self._held.get(found.segment_id)
        if before is not None and before.objects == objects:
            return before
        segment = None if self._known is None else self._known.readable.get(found.segment_id)
        try:
            manifest = self._manifest(found) if found.layout is Layout.AIVEN else None
            if manifest is not None and manifest.segment is not None:
                segment = manifest.segment
            if segment is not None:
                return StoredSegment(segment, self.place, objects, manifest)
            start = found.start_offset
            named = RemoteSegment(found.partition, found.segment_id, start, start - 1, (), -1, -1, -1, -1)
            return self._described(StoredSegment(named, self.place, objects, manifest))
        except FileNotFoundError:
            return None

    def _manifest(self, found: RemoteObjects) -> SegmentManifest:
        path = f"{self.place.directory}/{found.objects[RemoteFile.MANIFEST]}"
        try:
            manifest = parse_manifest(self.place.store.read_all(path, MOST_OF_MANIFEST))
            segment = manifest.segment
            key = (found.partition, found.start_offset, found.segment_id)
            if segment is not None and (segment.partition, segment.start_offset, segment.segment_id) != key:
                raise CorruptManifest(
                    f"it is of another segment than its key: {segment}", hint="was the object copied?"
                )
        except KafkalogError as error:
            raise error.at(topic_partition=self.topic_partition, path=path) from None
        return manifest

    def _described(self, held: StoredSegment) -> StoredSegment:
        """Facts that no manifest gives, from the files: the last offset from the last batch, the leader epochs from the
        segment's checkpoint of them, the largest timestamp from the time index."""
        keys = self._options.keys
        with open_remote(held, keys, self.topic_partition, pass_over_damage=self._pass_over_damage) as file:
            file.next_base_offset = None
            end = find_log_end(file).offset
            times, size = file.time_index, file.size
        epochs = epochs_within(leader_epochs_of(held, keys), held.segment.start_offset, end)
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
