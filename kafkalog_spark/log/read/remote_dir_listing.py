"""The segments in a partition's remote directory: those that are wholly there, and what is known of each.

Of Aiven's layout a manifest says it all: one small request a segment, several at once. LocalTieredStorage writes none:
there `__remote_log_metadata` says it where that is among what was opened; else the files themselves are asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kafkalog_spark.errors import CorruptManifest, KafkalogError
from kafkalog_spark.log.format.checkpoint import EpochEntry
from kafkalog_spark.log.read.log_end import find_log_end
from kafkalog_spark.log.read.remote_metadata import KnownSegments
from kafkalog_spark.log.read.remote_segment_file import HeldSegment, leader_epochs_of, open_remote
from kafkalog_spark.log.read.root_places import RemoteDir, in_parallel
from kafkalog_spark.log.store.interface import FileFacts, Listing
from kafkalog_spark.log.tiered.lineage import without_empty_epochs
from kafkalog_spark.log.tiered.manifest import SegmentManifest, parse_manifest
from kafkalog_spark.log.tiered.remote_names import Layout, RemoteFile, RemoteObjects, remote_objects
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment
from kafkalog_spark.log.tiered.tier_options import TierOptions

_MOST_OF_MANIFEST = 64 << 20
"""Bytes. The sizes of a million chunks take 5 MB."""

Objects = Mapping[RemoteFile, tuple[str, FileFacts | None]]


class RemoteDirListing:
    """One remote directory, looked at again and again: what was learnt of a segment is kept as long as its objects stay
    what they were. remembered: segments that somebody else has learnt of."""

    def __init__(
        self,
        place: RemoteDir,
        options: TierOptions,
        *,
        pass_over_damage: bool = False,
        remembered: Iterable[HeldSegment] = (),
    ) -> None:
        self.place = place
        self._options = options
        self._pass_over_damage = pass_over_damage
        self._held = {held.segment.segment_id: held for held in remembered if held.place == place}
        self._known: KnownSegments | None = None
        self.names: list[str] = []
        self.facts: Mapping[str, FileFacts] = {}
        self.exists = True

    @property
    def topic_partition(self) -> str:
        return f"{self.place.topic}-{self.place.partition}"

    def look(self, known: KnownSegments | None = None, *, below: int | None = None) -> list[RemoteObjects]:
        """The segments that are wholly there now, by start offset: one LIST. known: what `__remote_log_metadata` says
        of the partition; below: only those that begin before this offset. Raises OSError."""
        self._known = known
        try:
            listing = self.place.store.list(self.place.directory)
        except FileNotFoundError:
            self.exists, self.names, self.facts = False, [], {}
            return []
        self.exists, self.names, self.facts = True, listing.names, listing.files
        return [
            found
            for found in objects_in(self.place, listing, self._options.key_prefix)
            if not found.missing
            and (below is None or found.start_offset < below)
            and (known is None or known.may_be_read(found.segment_id))
        ]

    def held(self, wanted: Sequence[RemoteObjects]) -> list[HeldSegment | None]:
        """What is known of these segments, found out where it is not yet; None for one that was deleted since.

        Raises OSError where a manifest cannot be read, CorruptManifest and the errors of `open_remote`.
        """
        found = in_parallel(self._held_segment, wanted, self.place.store)
        self._held.update({held.segment.segment_id: held for held in found if held is not None})
        return found

    def _held_segment(self, found: RemoteObjects) -> HeldSegment | None:
        objects = {file: (name, self.facts.get(name)) for file, (name, _) in found.objects.items()}
        before = self._held.get(found.segment_id)
        if before is not None and before.objects == objects:
            return before
        segment = None if self._known is None else self._known.segments.get(found.segment_id)
        try:
            manifest = self._manifest(found) if found.layout is Layout.AIVEN else None
            if manifest is not None and manifest.segment is not None:
                segment = manifest.segment
            held = HeldSegment(segment or _named(found), self.place, objects, manifest)
            return held if segment is not None else self._described(held)
        except FileNotFoundError:
            return None

    def _manifest(self, found: RemoteObjects) -> SegmentManifest:
        name, _ = found.objects[RemoteFile.MANIFEST]
        path = f"{self.place.directory}/{name}"
        try:
            manifest = parse_manifest(self.place.store.read_all(path, _MOST_OF_MANIFEST))
            check_is_of(manifest, found)
        except KafkalogError as error:
            raise error.at(topic_partition=self.topic_partition, path=path) from None
        return manifest

    def _described(self, held: HeldSegment) -> HeldSegment:
        """What nobody wrote down, from the files: the last offset from the last batch, the leader epochs from the
        segment's checkpoint of them, the largest timestamp from the time index."""
        keys = self._options.keys
        with open_remote(held, keys, self.topic_partition, pass_over_damage=self._pass_over_damage) as file:
            file.next_base_offset = None
            end = find_log_end(file, pass_over_damage=self._pass_over_damage).offset
            times, size = file.time_index, file.size
        epochs = epochs_within(leader_epochs_of(held, keys), held.segment.start_offset, end)
        largest = times.last.timestamp if times.whole and times.last is not None else -1
        described = replace(
            held.segment,
            end_offset=end - 1,
            leader_epochs=epochs,
            max_timestamp=largest,
            event_timestamp=largest,
            size=size,
        )
        return replace(held, segment=described)


def objects_in(place: RemoteDir, listing: Listing, key_prefix: str = "") -> list[RemoteObjects]:
    """The objects of a listing by segment, also of those that are not whole; sizes 0 where the listing tells none.
    Keys are names in the directory."""
    above = place.directory.rsplit("/", 2 if place.layout is Layout.AIVEN else 1)[1:]
    prefix = "/".join(above) + "/"
    files = listing.files
    sized = [(prefix + name, files[name].size if name in files else 0) for name in listing.names]
    found = remote_objects(sized, place.layout, key_prefix)
    return [
        one._replace(objects={file: (key[len(prefix) :], size) for file, (key, size) in one.objects.items()})
        for one in found
        if one.partition == place.topic_id_partition
    ]


def check_is_of(manifest: SegmentManifest, found: RemoteObjects) -> None:
    """Raise CorruptManifest for a manifest that is of another segment than its key says."""
    segment = manifest.segment
    if segment is None:
        return
    of_manifest = (segment.partition, segment.start_offset, segment.segment_id)
    if of_manifest != (found.partition, found.start_offset, found.segment_id):
        raise CorruptManifest(f"it is of another segment than its key: {segment}", hint="was the object copied?")


def _named(found: RemoteObjects) -> RemoteSegment:
    """What names alone say; all else is missing."""
    return RemoteSegment(
        found.partition, found.segment_id, found.start_offset, found.start_offset - 1, (), -1, -1, -1, -1
    )


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
