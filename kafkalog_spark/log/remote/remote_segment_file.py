"""A remote segment's objects, read: its .log as a SegmentFile, its indexes, whole and as they were before the plugin.

A `.log` that was compressed or encrypted is fetched and turned back chunk by chunk, in the threads that fetch ahead.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from functools import partial

from kafkalog_spark.errors import CorruptChunk, CorruptLog, CorruptManifest, UnsupportedFormat
from kafkalog_spark.format.checkpoint import EpochEntry, parse_leader_epochs
from kafkalog_spark.format.index_file import entries_of
from kafkalog_spark.format.names import SegmentFiles
from kafkalog_spark.format.producer_snapshot import ProducerEntry, parse_producer_snapshot
from kafkalog_spark.format.transaction_index import AbortedTransaction, parse_transaction_index
from kafkalog_spark.log.read.discovery import RemoteDir
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.tiered.chunk_codec import ChunkCodec
from kafkalog_spark.log.tiered.chunks import ChunkIndex
from kafkalog_spark.log.tiered.key_ring import KeyRing
from kafkalog_spark.log.tiered.manifest import IndexRange, SegmentManifest
from kafkalog_spark.log.tiered.remote_names import INDEX_FILES, RemoteFile, RemoteSegment
from kafkalog_spark.store.interface import FetchBlock, FileFacts, Store

DECODED_BLOCK = 4 << 20
"""Bytes of a block of chunks, at least one chunk: as long as it is being decoded, what was fetched is there as well."""

MOST_OF_CHUNK = 128 << 20
"""Bytes. The plugin takes a chunk.size of up to 2^30-1, and its documentation has 4 MiB: a chunk of 1 GB of zeros comes
out of an object of 30 kB, and a worker holds two to three times a chunk."""
MOST_OF_INDEX = 256 << 20
"""Bytes of a file alongside the .log: an offset index with an entry for each batch of 300 bytes has 30 MB."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoredSegment:
    """A remote segment that is wholly there. objects: by what they hold, names in the directory with what the listing
    said of them (None: a local directory's says nothing). manifest: of Aiven's layout."""

    segment: RemoteSegment
    remote_dir: RemoteDir
    objects: Mapping[RemoteFile, tuple[str, FileFacts | None]]
    manifest: SegmentManifest | None

    @property
    def log_path(self) -> str:
        return self.path_of(RemoteFile.LOG)

    def path_of(self, file: RemoteFile) -> str:
        """Path of an object. Raises CorruptChunk where indexes are told of and lie nowhere."""
        if file is RemoteFile.INDEXES and file not in self.objects:
            raise CorruptChunk("the manifest tells of indexes, and there is no .indexes object", path=self.log_path)
        return os.path.join(self.remote_dir.directory, self.objects[file][0])

    @property
    def files(self) -> SegmentFiles:
        """Names as a SegmentFile has them; those of indexes end in what is meant, and are not names of objects."""
        indexes = (self.segment.name + file.value if self.has(file) else None for file in INDEX_FILES)
        return SegmentFiles(self.segment.start_offset, self.objects[RemoteFile.LOG][0], *indexes)

    def has(self, file: RemoteFile) -> bool:
        """True if there is such an index; None of a segment without aborted transactions has a transaction index."""
        if self.manifest is not None and self.manifest.indexes is not None:
            return file in self.manifest.indexes
        return file in self.objects

    @property
    def log_size(self) -> int | None:
        """Bytes of the segment; None where only opening it tells."""
        if self.manifest is not None:
            return self.manifest.chunks.original_file_size
        facts = self.objects[RemoteFile.LOG][1]
        return facts.size if facts is not None else None

    @property
    def object_size(self) -> int | None:
        """Bytes that the `.log` object has by what was written of it; None where nothing was."""
        if self.manifest is not None:
            return self.manifest.chunks.object_size
        return self.segment.size if self.segment.size >= 0 else None


def open_remote(
    held: StoredSegment, keys: KeyRing, topic_partition: str, *, pass_over_damage: bool = False
) -> SegmentFile:
    """Open a remote segment. Raises FileNotFoundError when it has gone, OSError; KeyNotGiven, CorruptManifest and
    CorruptLog where it cannot be read."""
    store, manifest = held.remote_dir.store, held.manifest
    file = store.open(held.log_path, held.objects[RemoteFile.LOG][1])
    try:
        if held.object_size not in (None, file.size):
            source = "its manifest" if manifest is not None else "__remote_log_metadata"
            wrong = CorruptLog(
                f"the object has {file.size} bytes, {source} says {held.object_size}",
                topic_partition=topic_partition,
                path=held.log_path,
                hint="it was cut short or replaced after it was written",
            )
            if not pass_over_damage:
                raise wrong
            _log.warning("mode=DROPMALFORMED: %s", wrong)
        plain = manifest is None or manifest.plain
        if manifest is not None and not plain:
            check_chunk_size(manifest, topic_partition, held.path_of(RemoteFile.MANIFEST))
            from kafkalog_spark.store.object_file import ObjectFile  # only where chunks are read

            chunks, codec, path = manifest.chunks, ChunkCodec.of(manifest, keys), held.log_path
            read = store.ranges(path, held.objects[RemoteFile.LOG][1] or FileFacts(file.size, ""))
            # several blocks are fetched at once; each chunk takes 8 MB more while it is decoded
            one_by_one = threading.Lock()
            file = ObjectFile(
                chunks.original_file_size,
                lambda begin, end: read_chunks(chunks, codec, path, read, begin, end, one_by_one, pass_over_damage),
                changed=file.has_changed,
                closed=file.close,
                align=chunks.original_chunk_size,
                block=DECODED_BLOCK,
            )
    except BaseException:
        file.close()
        raise
    return SegmentFile(
        file,
        held.remote_dir.directory,
        held.files,
        partial(_entries, held, keys),
        held.segment.until,
        topic_partition,
        # chunks that are turned back cost as much as requests: few looks, and reading ahead
        remote=store.remote or not plain,
        pass_over_damage=pass_over_damage,
    )


def check_chunk_size(manifest: SegmentManifest, topic_partition: str, path: str) -> None:
    """Raise UnsupportedFormat for chunks that nobody should hold in memory, whatever somebody wrote into a manifest."""
    chunks = manifest.chunks
    largest = max(min(chunks.original_chunk_size, chunks.original_file_size), int(chunks.sizes.max(initial=0)))
    if largest > MOST_OF_CHUNK:
        raise UnsupportedFormat(
            f"its chunks have {largest} bytes (originalChunkSize {chunks.original_chunk_size}), and those of more than "
            f"{MOST_OF_CHUNK} are not read: a chunk is turned back as a whole, in memory",
            topic_partition=topic_partition,
            path=path,
            hint="upload such segments with a smaller chunk.size (the plugin's documentation has 4 MiB), or read them "
            "through a broker",
        )


def read_chunks(
    chunks: ChunkIndex,
    codec: ChunkCodec,
    path: str,
    read: FetchBlock,
    begin: int,
    end: int,
    guard: AbstractContextManager[object],
    pass_over_damage: bool = False,
) -> bytearray:
    """The bytes [begin, end) of a segment, from the chunks of the object at `path` that hold them. read: gives a range
    of that object; guard: held while a chunk is turned back. Raises CorruptChunk; with pass_over_damage a damaged
    chunk is zeros, where no batch begins: what is passed over then is what was in it."""
    wanted = chunks.range_of(begin, end)
    data = memoryview(read(wanted.begin, wanted.end))
    target = bytearray(end - begin)
    into = memoryview(target)  # a slice of the bytearray itself would copy what is assigned to it once more
    for chunk, first, last in chunks.slices(begin, end):
        stored = data[chunk.position - wanted.begin :][: chunk.size]
        to = chunk.original_position + first - begin
        try:
            with guard:
                into[to : to + last - first] = memoryview(codec.chunk(stored, chunk, path))[first:last]
        except CorruptChunk as error:
            if not pass_over_damage:
                raise
            _log.warning("mode=DROPMALFORMED: %s", error)
    return target


def _entries(held: StoredSegment, keys: KeyRing, name: str, entry_size: int) -> bytes:
    """An index's bytes, for a SegmentFile. A damaged index is an OSError: to who reads the log, it is a hint."""
    try:
        data = index_bytes(held, keys, RemoteFile("." + name.rpartition(".")[2]))
    except CorruptChunk as error:
        raise OSError(errno.EIO, str(error)) from error
    return entries_of(lambda position, size: data[position : position + size], entry_size)


def index_bytes(held: StoredSegment, keys: KeyRing, file: RemoteFile) -> bytes:
    """Bytes of an index or checkpoint of the segment, as the broker had it; empty where the segment has none. Raises
    FileNotFoundError when the segment has gone, OSError, KeyNotGiven, CorruptManifest, CorruptChunk."""
    if not held.has(file):
        return b""
    codec = None if held.manifest is None else ChunkCodec.of(held.manifest, keys)
    facts = held.objects.get(RemoteFile.INDEXES, (None, None))[1]
    return read_indexes(held.remote_dir.store, held.path_of, held.manifest, codec, [file], facts).get(file, b"")


def read_indexes(
    store: Store,
    path_of: Callable[[RemoteFile], str],
    manifest: SegmentManifest | None,
    codec: ChunkCodec | None,
    kinds: Iterable[RemoteFile],
    facts: FileFacts | None = None,
    optional: RemoteFile | None = None,
) -> dict[RemoteFile, bytes]:
    """Indexes of these kinds, as the broker had them, without empty ones: one request where they lie in an `.indexes`
    object. facts: of that. optional: the kind whose own object may be missing. Raises as `index_bytes`."""
    if manifest is None or manifest.indexes is None:  # before October 2023 each was an object of its own
        found = {}
        for kind in kinds:
            try:
                data = store.read_all(path_of(kind), MOST_OF_INDEX)
            except FileNotFoundError:
                if kind is not optional:
                    raise
                continue
            found[kind] = data if codec is None else bytes(codec.index(data, IndexRange(0, len(data)), path_of(kind)))
        return found
    assert codec is not None
    places = manifest.indexes
    wanted = {kind: places[kind] for kind in kinds if kind in places and places[kind].size}
    if not wanted:
        return {}
    path = path_of(RemoteFile.INDEXES)
    facts = facts or FileFacts(max(place.position + place.size for place in places.values()), "")
    begin = min(place.position for place in wanted.values())
    end = min(max(place.position + place.size for place in wanted.values()), facts.size)
    if end - begin > MOST_OF_INDEX:
        raise CorruptManifest(
            f"its indexes take {end - begin} bytes, at most {MOST_OF_INDEX} are read", path=path_of(RemoteFile.MANIFEST)
        )
    fetched = memoryview(store.ranges(path, facts)(begin, end) if begin < end else b"")
    return {
        kind: bytes(codec.index(fetched[place.position - begin :][: place.size], place, path))
        for kind, place in wanted.items()
    }


def leader_epochs_of(held: StoredSegment, keys: KeyRing) -> list[EpochEntry]:
    """All from the log's start to the segment's end. Raises as `index_bytes`, and CorruptFile, UnsupportedFormat."""
    return parse_leader_epochs(index_bytes(held, keys, RemoteFile.LEADER_EPOCHS))


def producers_after(held: StoredSegment, keys: KeyRing) -> list[ProducerEntry]:
    """As the log knows them after the segment. Raises as `index_bytes`, and CorruptSnapshot, UnsupportedFormat."""
    return parse_producer_snapshot(index_bytes(held, keys, RemoteFile.PRODUCER_SNAPSHOT))


def aborted_of(held: StoredSegment, keys: KeyRing) -> list[AbortedTransaction] | None:
    """Return the transactions whose abort marker lies in the segment.

    Returns:
        None if only the batches tell: the length of the transaction index is written down nowhere, so it may be lost or
        cut (LocalTieredStorage, manifests before October 2023).

    Raises:
        CorruptIndex: If the index is damaged.
        CorruptChunk: If the `.indexes` object does not have the bytes that the manifest says.
        OSError, KeyNotGiven, CorruptManifest: As `index_bytes`.
    """
    if held.segment.transaction_index_empty:
        return []
    if held.manifest is None or held.manifest.indexes is None:
        return None
    check_indexes_size(held)
    data = index_bytes(held, keys, RemoteFile.TRANSACTION_INDEX)
    return parse_transaction_index(data, held.segment.start_offset)


def check_indexes_size(held: StoredSegment) -> None:
    """Raise CorruptChunk if the `.indexes` object has other bytes than those that the manifest gives to indexes: one of
    them is cut, or is missing in the manifest. Raises OSError too."""
    assert held.manifest is not None
    assert held.manifest.indexes is not None
    path = held.path_of(RemoteFile.INDEXES)
    facts = held.objects[RemoteFile.INDEXES][1]
    if facts is None:  # of a local directory
        with closing(held.remote_dir.store.open(path)) as file:
            facts = FileFacts(file.size, "")
    expected = max((place.position + place.size for place in held.manifest.indexes.values()), default=0)
    if facts.size != expected:
        raise CorruptChunk(
            f"the object has {facts.size} bytes, expected {expected} by segmentIndexes of its manifest",
            path=path,
            hint="an index is cut, or the manifest is damaged",
        )
