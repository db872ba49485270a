"""Remote storage as a broker uses it: closed segments copied to it, read from it and deleted in it.

Kafka's RemoteStorageManager, for the layouts AIVEN and LOCAL_TIERED, in a folder or a bucket. All calls block: they are
for worker threads, which may share one RemoteStorage.

A segment is finished when its last object is there: Aiven's manifest, LocalTieredStorage's producer snapshot. Objects
appear whole: a file is written aside and renamed, an object is put at once or completed after its last part.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from kafkalog_spark.errors import KafkalogError, RemoteResourceNotFound, RemoteStorageError
from kafkalog_spark.format.atomic_file import (
    TEMPORARY_SUFFIX,
    fsync_descriptor,
    fsync_directory,
    make_directories,
    open_regular,
    write_all,
)
from kafkalog_spark.format.batch_header import parse_header
from kafkalog_spark.format.layout import RECORDS_AT
from kafkalog_spark.log.remote.remote_caches import BoundedDirectory, ChunkCache, RemoteIndexCache, WeightedCache
from kafkalog_spark.log.remote.remote_segment_file import DECODED_BLOCK, check_chunk_size, read_indexes
from kafkalog_spark.log.remote.remote_storage_options import RemoteStorageOptions
from kafkalog_spark.log.tiered.chunk_codec import ENCRYPTION_OVERHEAD, ChunkCodec
from kafkalog_spark.log.tiered.chunks import ChunkIndex
from kafkalog_spark.log.tiered.manifest import (
    INDEX_FIELDS,
    MOST_OF_MANIFEST,
    IndexRange,
    SegmentManifest,
    format_manifest,
    parse_manifest,
)
from kafkalog_spark.log.tiered.remote_log_metadata import custom_object_key, encode_custom_metadata
from kafkalog_spark.log.tiered.remote_names import INDEX_FILES, Layout, RemoteFile, RemoteSegment, remote_key
from kafkalog_spark.store.interface import LOCAL, Buffer, FetchBlock, FileFacts, LocalStore, is_local
from kafkalog_spark.store.object_store import PART, ObjectStore
from kafkalog_spark.store.stores import store_of

Throttle = Callable[[int], None]  # called with how many bytes are sent next; waits while that is too many


@dataclass(frozen=True)
class LogSegmentData:
    """The files of a closed segment (Kafka's class of that name). indexes: a transaction index only where a transaction
    was aborted in it; the producer snapshot is that of the next segment's base offset. leader_epochs: a leader-epoch
    checkpoint's content, from the log's start to the segment's end."""

    log: Path
    indexes: Mapping[RemoteFile, Path]
    leader_epochs: bytes

    def index(self, kind: RemoteFile) -> bytes | None:
        """Bytes of an index; None for one that there is not. Raises OSError."""
        if kind is RemoteFile.LEADER_EPOCHS:
            return self.leader_epochs
        return self.indexes[kind].read_bytes() if kind in self.indexes else None


Pieces = Callable[[], Iterable[bytes]]  # an object's bytes from its beginning on; called for each try


@dataclass(frozen=True)
class FolderStore(LocalStore):
    """Objects in a folder; `root` stays when it is empty. An object is written aside and renamed, so that a file
    with its name is whole and on disk. Thread-safe. All methods raise OSError."""

    root: str

    def ranges(self, path: str, facts: FileFacts) -> FetchBlock:
        """Function that fetches ranges of a file of facts.size bytes; one that was cut is refused as a whole."""

        def fetch(begin: int, end: int) -> Buffer:
            with closing(LOCAL.open(path)) as file:
                if file.size < facts.size:
                    raise OSError(errno.EIO, f"the file has {file.size} bytes, expected {facts.size}", path)
                return file.read(begin, end - begin)

        return fetch

    def upload(self, path: str, pieces: Pieces, size: int) -> None:
        """Write an object of about `size` bytes; it is on disk on return, with its name and the directories above.

        Raises what `pieces` raises, too.
        """
        directory, aside = os.path.dirname(path), path + TEMPORARY_SUFFIX
        try:
            fd = self._created(aside, directory)
            try:
                for piece in pieces():
                    write_all(fd, piece)
                fsync_descriptor(fd)
            finally:
                os.close(fd)
            os.replace(aside, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(aside)
            raise
        # Another thread, or a process that was killed, may have made a directory above and not synced its name.
        for above in self._up_to_root(directory):
            fsync_directory(above)
        with suppress(PermissionError):  # the directory above the root may belong to somebody else
            fsync_directory(os.path.dirname(self.root))

    def _created(self, path: str, directory: str) -> int:
        while True:
            make_directories(directory)
            with suppress(FileNotFoundError):  # `delete` has removed the directory, which was empty
                return open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects, and what was left of writing them; they do not come back after a crash. It is no error if one
        is not there."""
        for path in paths:
            for name in (path, path + TEMPORARY_SUFFIX):
                with suppress(FileNotFoundError, NotADirectoryError):
                    os.unlink(name)
        for directory in dict.fromkeys(map(os.path.dirname, paths)):
            with suppress(FileNotFoundError, NotADirectoryError):
                fsync_directory(directory)
            with suppress(OSError):  # other objects are in it
                for empty in self._up_to_root(directory):
                    if empty != self.root:
                        os.rmdir(empty)

    def _up_to_root(self, directory: str) -> Iterator[str]:
        """The directory and those above it, up to the root."""
        while directory.startswith(self.root):
            yield directory
            directory = os.path.dirname(directory)


_LARGE_CHUNK = 16 << 20
"""Bytes. Larger chunks are decoded anew from their start for each block, which costs more and takes less memory."""
_MANIFEST_BYTES = 8 << 20
"""Bytes of the manifests that are kept, those used last. One of a segment of 1 GB in chunks of 4 MiB has 4 kB, but a
segment may have a million chunks."""
_MANIFEST = 2 << 10  # bytes of a manifest without the positions of its chunks
_READ = 1 << 20  # bytes of a file read at once where it is not cut into chunks


class RemoteStorage:
    """Segments in the place that `options` name. index_cache: for indexes; without it none are kept. Threads share it.
    Raises OptionError for a place that cannot be, OSError where the directory cannot be used."""

    def __init__(self, options: RemoteStorageOptions, index_cache: BoundedDirectory | None = None) -> None:
        self.options = options
        store = FolderStore(options.root) if is_local(options.root) else store_of(options.root, options.storage)
        assert isinstance(store, FolderStore | ObjectStore)
        self._store = store
        self._indexes = None if index_cache is None else RemoteIndexCache(*index_cache)
        self._chunks = ChunkCache(options.chunk_cache_bytes)
        self._manifests = WeightedCache[tuple[SegmentManifest, ChunkCodec]](_MANIFEST_BYTES, _size_of)

    def close(self) -> None:
        """Stop reading ahead."""
        self._chunks.close()

    # Writing.

    def copy(self, segment: RemoteSegment, data: LogSegmentData, throttle: Throttle = lambda _: None) -> bytes | None:
        """Copy a segment, whose metadata `segment` is; returns custom metadata for `__remote_log_metadata`. The object
        that makes it complete is written last. Where it fails, what was written is deleted as far as that is possible;
        `delete` does so later. Raises RemoteStorageError, OptionError or KeyNotGiven for the key pair."""
        copied = _copy_aiven if self.options.layout is Layout.AIVEN else _copy_local_tiered
        with self._errors(segment):
            try:
                return copied(self, segment, data, throttle)
            except BaseException:
                with suppress(OSError):
                    self.remove(segment)
                raise

    def delete(self, segment: RemoteSegment) -> None:
        """Delete a segment's objects, if any, that which makes it complete first. Raises RemoteStorageError."""
        with self._errors(segment):
            self.remove(segment)
        if self._indexes is not None:
            self._indexes.forget(segment)
        self._chunks.forget(lambda key: isinstance(key, tuple) and key[0] == segment.segment_id)

    def remove(self, segment: RemoteSegment) -> None:
        """Delete a segment's objects, first the one that makes it complete, which is the last one written. Raises
        OSError."""
        *others, last = (self._path(segment, file) for file in _UPLOADS[self.options.layout])
        self._store.delete([last])
        self._store.delete(others[::-1])

    def put(self, segment: RemoteSegment, file: RemoteFile, pieces: Pieces, size: int, throttle: Throttle) -> int:
        """Write an object of a segment; the bytes that it has. Raises OSError, and what `pieces` raises."""
        written = 0

        def throttled() -> Iterator[bytes]:
            nonlocal written
            written = 0
            for piece in pieces():
                throttle(len(piece))
                written += len(piece)
                yield piece

        self._store.upload(self._path(segment, file), throttled, size)
        return written

    # Reading.

    def fetch(self, segment: RemoteSegment, begin: int, end: int) -> bytes:
        """The bytes [begin, end) of the segment's .log, fewer at its end. Raises RemoteResourceNotFound when it is not
        there, RemoteStorageError, CorruptManifest, CorruptChunk, KeyNotGiven, UnsupportedFormat."""
        with self._errors(segment):
            if self.options.layout is Layout.LOCAL_TIERED:
                return self._plain(segment, segment.size, begin, end)
            manifest, _ = self._stored(segment)
            size = manifest.chunks.original_file_size
            if manifest.plain and is_local(self.options.root):
                return self._plain(segment, size, begin, end)
            return self._by_blocks(segment, manifest.chunks, begin, min(end, size))

    def fetch_index(self, segment: RemoteSegment, kind: RemoteFile) -> bytes:
        """An index, snapshot or leader epochs as the broker had it; empty where there is none. Raises as `fetch`."""
        with self._errors(segment):
            if self._indexes is not None and kind in INDEX_FILES:
                return self._indexes.get(segment, kind, partial(self._read_indexes, segment, INDEX_FILES))
            return self._read_indexes(segment, [kind]).get(kind, b"")

    def _plain(self, segment: RemoteSegment, size: int, begin: int, end: int) -> bytes:
        end = min(end, size)
        if begin >= end:
            return b""
        path = self._path(segment, RemoteFile.LOG)
        return bytes(self._store.ranges(path, FileFacts(size, ""))(begin, end))

    def _by_blocks(self, segment: RemoteSegment, chunks: ChunkIndex, begin: int, end: int) -> bytes:
        """By blocks of chunks from the cache; for who reads on, or from the start, the next are fetched ahead."""
        if begin >= end:
            return b""
        size, block = chunks.original_file_size, self._block(segment, chunks.original_chunk_size)
        first, last = begin // block, (end - 1) // block

        def piece(number: int) -> tuple[tuple[object, int], int, Callable[[], bytes]]:
            at, until = number * block, min((number + 1) * block, size)
            return (segment.segment_id, number), until - at, partial(self._decoded, segment, at, until)

        ahead = 1
        if first == 0 or (segment.segment_id, first - 1) in self._chunks:
            ahead = 1 + self.options.prefetch_bytes // block
        for number in range(first + 1, min(last + ahead, (size - 1) // block + 1)):
            self._chunks.fetch_ahead(*piece(number))
        parts = []
        for number in range(first, last + 1):
            at = number * block
            data = self._chunks.get(*piece(number))
            parts.append(data[max(begin - at, 0) : end - at] if at < begin or end - at < len(data) else data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _block(self, segment: RemoteSegment, chunk_size: int) -> int:
        """Bytes that are decoded and cached together: whole chunks, or a part of a large one where that is possible."""
        if chunk_size > _LARGE_CHUNK and self._stored(segment)[1].decodes_parts:
            return DECODED_BLOCK
        return chunk_size * max(DECODED_BLOCK // chunk_size, 1)

    def _decoded(self, segment: RemoteSegment, begin: int, end: int) -> bytes:
        manifest, codec = self._stored(segment)
        path = self._path(segment, RemoteFile.LOG)
        read = self._store.ranges(path, FileFacts(manifest.chunks.object_size, ""))
        if manifest.plain:
            return bytes(read(begin, end))
        if self._block(segment, manifest.chunks.original_chunk_size) < manifest.chunks.original_chunk_size:
            slices = manifest.chunks.slices(begin, end)
            parts = [codec.part(read, chunk, first, last, path) for chunk, first, last in slices]
            return parts[0] if len(parts) == 1 else b"".join(parts)
        stored = manifest.chunks.range_of(begin, end)
        data = memoryview(read(stored.begin, stored.end))
        # A block consists of whole chunks, and one of a single chunk is not copied.
        chunks = [
            codec.chunk(data[chunk.position - stored.begin :][: chunk.size], chunk, path)
            for chunk in map(manifest.chunks.chunk, stored.chunks)
        ]
        only = chunks[0]
        return only if len(chunks) == 1 and isinstance(only, bytes) else b"".join(chunks)

    def _stored(self, segment: RemoteSegment) -> tuple[SegmentManifest, ChunkCodec]:
        return self._manifests.get(segment, partial(self._read_manifest, segment))

    def _read_manifest(self, segment: RemoteSegment) -> tuple[SegmentManifest, ChunkCodec]:
        path = self._path(segment, RemoteFile.MANIFEST)
        manifest = parse_manifest(self._store.read_all(path, MOST_OF_MANIFEST))
        check_chunk_size(manifest, str(segment), path)
        return manifest, ChunkCodec.of(manifest, self.options.keys)

    def _read_indexes(self, segment: RemoteSegment, kinds: Sequence[RemoteFile]) -> dict[RemoteFile, bytes]:
        manifest, codec = (None, None) if self.options.layout is Layout.LOCAL_TIERED else self._stored(segment)
        path_of = partial(self._path, segment)
        return read_indexes(self._store, path_of, manifest, codec, kinds, optional=RemoteFile.TRANSACTION_INDEX)

    # Names and errors.

    def _path(self, segment: RemoteSegment, file: RemoteFile) -> str:
        prefix = self.options.key_prefix
        if file is not RemoteFile.MANIFEST and segment.custom_metadata and self.options.layout is Layout.AIVEN:
            said_prefix, said_key = custom_object_key(segment.custom_metadata)
            prefix = prefix if said_prefix is None else said_prefix
            if said_key is not None:
                return f"{self.options.root}/{prefix}{said_key}{file.value}"
        return f"{self.options.root}/{remote_key(self.options.layout, segment, file, prefix)}"

    @contextmanager
    def _errors(self, segment: RemoteSegment) -> Iterator[None]:
        name = f"{segment.partition.topic}-{segment.partition.partition}"
        try:
            yield
        except FileNotFoundError as error:
            raise RemoteResourceNotFound(
                f"the remote segment {segment.name} is not there: {error.strerror}",
                topic_partition=name,
                path=error.filename,
            ) from None
        except OSError as error:
            raise RemoteStorageError(
                f"the remote segment {segment.name}: {error.strerror}", topic_partition=name, path=error.filename
            ) from None
        except KafkalogError as error:
            raise error.at(topic_partition=name) from None


def _size_of(stored: tuple[SegmentManifest, ChunkCodec]) -> int:
    return _MANIFEST + int(stored[0].chunks.positions.nbytes)


_UPLOADS = {
    Layout.AIVEN: (RemoteFile.LOG, RemoteFile.INDEXES, RemoteFile.MANIFEST),
    Layout.LOCAL_TIERED: (
        RemoteFile.LOG, RemoteFile.OFFSET_INDEX, RemoteFile.TIME_INDEX, RemoteFile.TRANSACTION_INDEX,
        RemoteFile.LEADER_EPOCHS, RemoteFile.PRODUCER_SNAPSHOT,
    ),
}  # fmt: skip
"""The objects of a segment in the order in which they are written; that which makes it complete is the last."""


def _copy_local_tiered(
    storage: RemoteStorage, segment: RemoteSegment, data: LogSegmentData, throttle: Throttle
) -> None:
    for file in _UPLOADS[Layout.LOCAL_TIERED]:
        if file is RemoteFile.LOG:
            storage.put(segment, file, partial(_read_pieces, data.log, segment.size, _READ), segment.size, throttle)
            continue
        index = data.index(file)
        if index is not None:
            storage.put(segment, file, partial(_piece, index), len(index), throttle)


def _copy_aiven(
    storage: RemoteStorage, segment: RemoteSegment, data: LogSegmentData, throttle: Throttle
) -> bytes | None:
    options = storage.options
    compress = options.compress
    if compress and options.compress_by_first_batch:
        with data.log.open("rb") as file:
            head = file.read(RECORDS_AT)
        compress = len(head) < RECORDS_AT or parse_header(head, 0, 0).codec == 0
    codec = ChunkCodec.for_new_segment(compress, options.keys, options.key_id)
    sizes: list[int] = []

    def chunks() -> Iterator[bytes]:
        sizes.clear()  # of the try before
        for chunk in _read_pieces(data.log, segment.size, options.chunk_size):
            stored = codec.transformed(chunk)
            sizes.append(len(stored))
            yield stored

    log_bytes = storage.put(segment, RemoteFile.LOG, chunks, segment.size, throttle)
    indexes, places = b"", {}
    for kind in INDEX_FIELDS:
        index = data.index(kind)
        if index is not None:
            stored = codec.transformed_index(index)
            places[kind] = IndexRange(len(indexes), len(stored))
            indexes += stored
    storage.put(segment, RemoteFile.INDEXES, partial(_piece, indexes), len(indexes), throttle)
    if compress:
        index_of = ChunkIndex.of_variable(options.chunk_size, segment.size, np.array(sizes, np.int64))
    else:
        overhead = 0 if codec.cipher is None else ENCRYPTION_OVERHEAD
        index_of = ChunkIndex.of_fixed(
            options.chunk_size, segment.size, options.chunk_size + overhead, sizes[-1] if sizes else 0
        )
    manifest = format_manifest(SegmentManifest(index_of, compress, codec.encryption, places, segment))
    storage.put(segment, RemoteFile.MANIFEST, partial(_piece, manifest), len(manifest), throttle)
    fields = options.custom_fields
    return encode_custom_metadata(
        log_bytes + len(indexes) + len(manifest) if "REMOTE_SIZE" in fields else None,
        options.key_prefix if "OBJECT_PREFIX" in fields else None,
        remote_key(Layout.AIVEN, segment, RemoteFile.LOG).removesuffix(".log") if "OBJECT_KEY" in fields else None,
    )


def _piece(data: bytes) -> Iterator[bytes]:
    for at in range(0, len(data), PART):
        yield data[at : at + PART]


def _read_pieces(path: Path, size: int, piece: int) -> Iterator[bytes]:
    """The first `size` bytes of a file in pieces. Raises RemoteStorageError for a file of fewer: another segment."""
    with path.open("rb") as file:
        left = size
        while left:
            data = file.read(min(piece, left))
            if not data:
                raise RemoteStorageError(
                    f"the segment has {size - left} bytes on disk, and {size} were to be copied", path=str(path)
                )
            left -= len(data)
            yield data
