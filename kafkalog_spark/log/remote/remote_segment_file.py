"""Read the objects of a remote segment: its .log as a SegmentFile, and its indexes, decoded.

A compressed or encrypted .log is fetched and decoded chunk by chunk, in the threads that read ahead.
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
"""Bytes of the chunks that are decoded together; at least one chunk. While they are decoded, the fetched bytes are in
memory as well."""

MOST_OF_CHUNK = 128 << 20
"""Largest chunk in bytes. The plugin accepts a chunk.size of up to 2^30-1, its documentation uses 4 MiB. A small object
can decompress to a huge chunk, and a worker needs two to three times the size of a chunk."""
MOST_OF_INDEX = 256 << 20
"""Largest index in bytes: an offset index with an entry for each batch of 300 bytes has 30 MB."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoredSegment:
    """A complete remote segment.

    Attributes:
        segment: Its metadata.
        remote_dir: The directory that has it.
        objects: Name in the directory and listed facts of each object, by kind. A local directory has no facts.
        manifest: The manifest in Aiven's layout; None in others.
    """

    segment: RemoteSegment
    remote_dir: RemoteDir
    objects: Mapping[RemoteFile, tuple[str, FileFacts | None]]
    manifest: SegmentManifest | None

    @property
    def log_path(self) -> str:
        return self.path_of(RemoteFile.LOG)

    def path_of(self, file: RemoteFile) -> str:
        """Return the path of an object. Raises CorruptChunk if the manifest has indexes, but there is no .indexes."""
        if file is RemoteFile.INDEXES and file not in self.objects:
            raise CorruptChunk("the manifest has indexes, but there is no .indexes object", path=self.log_path)
        return os.path.join(self.remote_dir.directory, self.objects[file][0])

    @property
    def files(self) -> SegmentFiles:
        """File names for a SegmentFile. Those of indexes are not object names, but have the suffix of their kind."""
        indexes = (self.segment.name + file.value if self.has(file) else None for file in INDEX_FILES)
        return SegmentFiles(self.segment.start_offset, self.objects[RemoteFile.LOG][0], *indexes)

    def has(self, file: RemoteFile) -> bool:
        """True if the segment has this index. Without aborted transactions, it has no transaction index."""
        if self.manifest is not None and self.manifest.indexes is not None:
            return file in self.manifest.indexes
        return file in self.objects

    @property
    def log_size(self) -> int | None:
        """Size of the decoded .log in bytes; None if it is not known before the object is opened."""
        if self.manifest is not None:
            return self.manifest.chunks.original_file_size
        facts = self.objects[RemoteFile.LOG][1]
        return facts.size if facts is not None else None

    @property
    def object_size(self) -> int | None:
        """Size of the .log object in bytes by the metadata; None if the metadata does not have it."""
        if self.manifest is not None:
            return self.manifest.chunks.object_size
        return self.segment.size if self.segment.size >= 0 else None


def open_remote(
    held: StoredSegment, keys: KeyRing, topic_partition: str, *, pass_over_damage: bool = False
) -> SegmentFile:
    """Open the .log of a remote segment.

    Args:
        held: The segment.
        keys: Private keys, for encrypted segments.
        topic_partition: For messages.
        pass_over_damage: mode=DROPMALFORMED: log damage, and continue, where that is possible.

    Raises:
        FileNotFoundError: If it was deleted.
        OSError: If the object cannot be opened.
        KeyNotGiven: If the private key of an encrypted segment is missing.
        CorruptManifest, CorruptLog, UnsupportedFormat: If the objects are damaged or not supported.
    """
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
            # Several blocks are fetched at once, but decoded one by one, to bound the memory.
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
        # Decoding chunks is as expensive as requests, so treat the file as remote: few look-ups, and read ahead.
        remote=store.remote or not plain,
        pass_over_damage=pass_over_damage,
    )


def check_chunk_size(manifest: SegmentManifest, topic_partition: str, path: str) -> None:
    """Raise UnsupportedFormat if the chunks of a manifest are too large to be decoded in memory."""
    chunks = manifest.chunks
    largest = max(min(chunks.original_chunk_size, chunks.original_file_size), int(chunks.sizes.max(initial=0)))
    if largest > MOST_OF_CHUNK:
        raise UnsupportedFormat(
            f"its chunks have {largest} bytes (originalChunkSize {chunks.original_chunk_size}), at most "
            f"{MOST_OF_CHUNK} are supported: a chunk is decoded as a whole, in memory",
            topic_partition=topic_partition,
            path=path,
            hint="upload such segments with a smaller chunk.size (the plugin's documentation uses 4 MiB), or read them "
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
    """Return the bytes [begin, end) of a segment, decoded from the chunks of its object.

    Args:
        chunks: The chunks.
        codec: Decodes them.
        path: Path of the object.
        read: Reads a range of the object.
        begin: First byte in the segment.
        end: Byte in the segment after the last one.
        guard: Held while a chunk is decoded.
        pass_over_damage: Return zeros for a damaged chunk. No batch begins in zeros, so its batches are skipped.

    Raises:
        CorruptChunk: If a chunk is damaged, unless damage is passed over.
    """
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
    """Return the entries of an index, for a SegmentFile. A damaged index is an OSError, because indexes are only hints.

    name: One of `StoredSegment.files`.
    """
    try:
        data = index_bytes(held, keys, RemoteFile("." + name.rpartition(".")[2]))
    except CorruptChunk as error:
        raise OSError(errno.EIO, str(error)) from error
    return entries_of(lambda position, size: data[position : position + size], entry_size)


def index_bytes(held: StoredSegment, keys: KeyRing, file: RemoteFile) -> bytes:
    """Return the decoded bytes of an index or checkpoint of a segment; empty if the segment does not have it.

    Raises:
        FileNotFoundError: If the segment was deleted.
        OSError: If the object cannot be read.
        KeyNotGiven: If the private key of an encrypted segment is missing.
        CorruptManifest, CorruptChunk: If the objects are damaged.
    """
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
    """Return the decoded bytes of indexes by kind, without empty ones; by one request if there is an .indexes object.

    Args:
        store: Has the objects.
        path_of: Returns the path of an object.
        manifest: The manifest in Aiven's layout; None in others.
        codec: Decodes the indexes; None if they are not encoded.
        kinds: Requested indexes.
        facts: Listed facts of the .indexes object, if known.
        optional: Kind whose own object may be missing.

    Raises:
        As `index_bytes`.
    """
    if manifest is None or manifest.indexes is None:  # each index has its own object, in Aiven's layout until 2023
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
    ranges = manifest.indexes
    wanted = {kind: ranges[kind] for kind in kinds if kind in ranges and ranges[kind].size}
    if not wanted:
        return {}
    path = path_of(RemoteFile.INDEXES)
    facts = facts or FileFacts(max(each.position + each.size for each in ranges.values()), "")
    begin = min(each.position for each in wanted.values())
    end = min(max(each.position + each.size for each in wanted.values()), facts.size)
    if end - begin > MOST_OF_INDEX:
        raise CorruptManifest(
            f"its indexes take {end - begin} bytes, at most {MOST_OF_INDEX} are read", path=path_of(RemoteFile.MANIFEST)
        )
    fetched = memoryview(store.ranges(path, facts)(begin, end) if begin < end else b"")
    return {
        kind: bytes(codec.index(fetched[each.position - begin :][: each.size], each, path))
        for kind, each in wanted.items()
    }


def leader_epochs_of(held: StoredSegment, keys: KeyRing) -> list[EpochEntry]:
    """Return the leader epochs from the log start to the end of the segment.

    Raises CorruptFile, UnsupportedFormat, and the errors of `index_bytes`.
    """
    return parse_leader_epochs(index_bytes(held, keys, RemoteFile.LEADER_EPOCHS))


def producers_after(held: StoredSegment, keys: KeyRing) -> list[ProducerEntry]:
    """Return the state of the producers after the segment.

    Raises CorruptSnapshot, UnsupportedFormat, and the errors of `index_bytes`.
    """
    return parse_producer_snapshot(index_bytes(held, keys, RemoteFile.PRODUCER_SNAPSHOT))


def aborted_of(held: StoredSegment, keys: KeyRing) -> list[AbortedTransaction] | None:
    """Return the transactions whose abort marker lies in the segment.

    Returns:
        None if they are only known from the batches: the length of the transaction index is not recorded, so entries
        may be lost (LocalTieredStorage, manifests before October 2023).

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
    """Check that the size of the .indexes object is that of all indexes in the manifest.

    Raises:
        CorruptChunk: If it differs: an index is cut, or is missing in the manifest.
        OSError: If the object cannot be opened.
    """
    assert held.manifest is not None
    assert held.manifest.indexes is not None
    path = held.path_of(RemoteFile.INDEXES)
    facts = held.objects[RemoteFile.INDEXES][1]
    if facts is None:  # in a local directory
        with closing(held.remote_dir.store.open(path)) as file:
            facts = FileFacts(file.size, "")
    expected = max((each.position + each.size for each in held.manifest.indexes.values()), default=0)
    if facts.size != expected:
        raise CorruptChunk(
            f"the object has {facts.size} bytes, expected {expected} by segmentIndexes of its manifest",
            path=path,
            hint="an index is cut, or the manifest is damaged",
        )
