"""Remote storage as a broker uses it: closed segments copied to it, read from it and deleted in it.

Kafka's RemoteStorageManager, for the layouts AIVEN and LOCAL_TIERED, in a folder or a bucket. All calls block: they are
for worker threads, which may share one RemoteStorage.

A segment is finished when its last object is there: Aiven's manifest, LocalTieredStorage's producer snapshot. Objects
appear whole: a file is written aside and renamed, an object is put at once or completed after its last part.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial

from kafkalog_spark.errors import (
    CorruptManifest,
    CorruptRemoteMetadata,
    KafkalogError,
    OptionError,
    RemoteResourceNotFound,
    RemoteStorageError,
    UnsafePath,
)
from kafkalog_spark.format.atomic_file import (
    TEMPORARY_SUFFIX,
    NotRegularFile,
    create_aside,
    fsync_descriptor,
    fsync_directory,
    make_directories,
    replace_file,
    write_all,
)
from kafkalog_spark.format.names import REMOTE_STORAGE_MARKER
from kafkalog_spark.format.relative_path import joined_below
from kafkalog_spark.log.remote.chunk_cache import ChunkCache
from kafkalog_spark.log.remote.remote_index_cache import BoundedDirectory, RemoteIndexCache
from kafkalog_spark.log.remote.remote_segment_file import DECODED_BLOCK, check_chunk_size, read_indexes
from kafkalog_spark.log.remote.remote_storage_options import RemoteStorageOptions
from kafkalog_spark.log.remote.segment_upload import UPLOAD_ORDER, LogSegmentData, Pieces, upload_segment
from kafkalog_spark.log.remote.weighted_cache import WeightedCache
from kafkalog_spark.log.tiered.chunk_codec import ChunkCodec
from kafkalog_spark.log.tiered.chunks import ChunkIndex
from kafkalog_spark.log.tiered.custom_metadata import custom_object_key
from kafkalog_spark.log.tiered.manifest import (
    MOST_OF_MANIFEST,
    SegmentManifest,
    parse_manifest,
)
from kafkalog_spark.log.tiered.remote_names import INDEX_FILES, Layout, RemoteFile, RemoteSegment, remote_key
from kafkalog_spark.store.interface import Buffer, FetchBlock, FileFacts
from kafkalog_spark.store.local_store import LOCAL, LocalStore
from kafkalog_spark.store.object_client import ObjectClient
from kafkalog_spark.store.object_store import ObjectStore
from kafkalog_spark.store.paths import is_local, parse_path

Throttle = Callable[[int], None]
"""Called with the number of bytes to send next; blocks while a quota forbids that."""


@dataclass(frozen=True)
class FolderStore(LocalStore):
    """Objects in a folder; `root` stays when it is empty. An object is written aside and renamed, so that a file
    with its name is whole and on disk. Thread-safe. All methods raise OSError, and UnsafePath for a path that does not
    lie below `root`, also for one that leads out of it through a symbolic link.

    folder: where the marker file is: `root`, or the directory above it. Without the marker nothing is written, and no
    object counts as deleted: the folder is gone, or it is the mount point of a file system that is not mounted."""

    root: str
    folder: str

    @property
    def is_marked(self) -> bool:
        return os.path.isfile(os.path.join(self.folder, REMOTE_STORAGE_MARKER))

    def mark(self) -> None:
        """Create `root` if it is missing, and the marker."""
        make_directories(self.root)
        replace_file(os.path.join(self.folder, REMOTE_STORAGE_MARKER), _MARKER_TEXT)

    def check(self) -> None:
        """Raise OSError, which is no FileNotFoundError, if the folder is not the marked one."""
        if self.is_marked:
            return
        if not os.path.isdir(self.folder):
            what = "the folder of remote storage is not there: mount or restore it"
        else:
            what = (
                f"the folder of remote storage does not hold {REMOTE_STORAGE_MARKER}, which the broker put there: is "
                "its file system mounted? If this is the right folder, create an empty file of that name"
            )
        raise OSError(errno.ENOTCONN, what, self.folder)

    def ranges(self, path: str, facts: FileFacts) -> FetchBlock:
        """Function that fetches ranges of a file of facts.size bytes; one of another size is refused as a whole."""

        def fetch(begin: int, end: int) -> Buffer:
            self._confirm(path)
            with closing(LOCAL.open(path)) as file:
                if file.size != facts.size:
                    raise OSError(errno.EIO, f"the file has {file.size} bytes, expected {facts.size}", path)
                return file.read(begin, end - begin)

        return fetch

    def read_all(self, path: str, most: int) -> bytes:
        self._confirm(path)
        return super().read_all(path, most)

    def upload(self, path: str, pieces: Pieces, size: int) -> None:
        """Write an object of about `size` bytes; it is on disk on return, with its name and the directories above.

        Raises what `pieces` raises, too.
        """
        self._confirm(path)
        self.check()
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
        self.check()  # else the folder has gone meanwhile, and this object lies below its mount point

    def _created(self, path: str, directory: str) -> int:
        while True:
            make_directories(directory)
            with suppress(FileNotFoundError):  # `delete` has removed the directory, which was empty
                return create_aside(path)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects, and what was left of writing them; they do not come back after a crash. It is no error if one
        is not there."""
        for path in paths:
            self._confirm(path)
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
        self.check()  # else nothing was deleted: the objects are in the folder that is not there

    def _up_to_root(self, directory: str) -> Iterator[str]:
        """The directory and those above it, up to the root."""
        yield directory
        while directory != self.root:
            directory = os.path.dirname(directory)
            yield directory

    def _confirm(self, path: str) -> None:
        joined_below(self.root, path.removeprefix(f"{self.root.rstrip('/')}/"))
        real = os.path.realpath(path)
        if not real.startswith(os.path.join(os.path.realpath(self.root), "")):
            raise UnsafePath(f"a symbolic link leads out of {self.root}, to {real}", path=path)


@dataclass(frozen=True)
class BucketStore(ObjectStore):
    """Objects in a bucket, with a client of its own: once `stopping` is set, a request that fails is not repeated."""

    stopping: threading.Event = field(default_factory=threading.Event, compare=False)

    @cached_property
    def client(self) -> ObjectClient:
        return ObjectClient(self.scheme, self.bucket, self.options, wait=self.stopping.wait)


_MARKER_TEXT = b"A kafkalog broker recognises its remote storage by this file. Do not delete it.\n"
_LARGE_CHUNK = 16 << 20
"""Bytes. Larger chunks are decoded anew from their start for each block, which costs more and takes less memory."""
_MANIFEST_BYTES = 8 << 20
"""Bytes of the manifests that are kept, those used last. One of a segment of 1 GB in chunks of 4 MiB has 4 kB, but a
segment may have a million chunks."""
_MANIFEST = 2 << 10  # bytes of a manifest without the positions of its chunks


class RemoteStorage:
    """Segments in the place that `options` name. index_cache: for indexes; without it none are kept. Threads share it.
    Raises OptionError for a place that cannot be, OSError where the directory cannot be used."""

    def __init__(self, options: RemoteStorageOptions, index_cache: BoundedDirectory | None = None) -> None:
        self.options = options
        self._stopping = threading.Event()
        self._store: FolderStore | BucketStore
        if is_local(options.root):
            self._store = FolderStore(options.root, options.folder)
        else:
            scheme, bucket, _ = parse_path(options.root)
            self._store = BucketStore(scheme, bucket, options.storage, self._stopping)
        self._indexes = None if index_cache is None else RemoteIndexCache(*index_cache)
        self._chunks = ChunkCache(options.chunk_cache_bytes)
        self._manifests = WeightedCache[tuple[SegmentManifest, ChunkCodec]](_MANIFEST_BYTES, _size_of)

    def stop_retries(self) -> None:
        """Let requests that fail from now on, or wait for their next try, end with their error."""
        self._stopping.set()

    def close(self) -> None:
        """Stop reading ahead, and repeating requests. Waits for nothing."""
        self.stop_retries()
        self._chunks.close()

    # Location.

    def check_settings(self) -> None:
        """Read the files that the options name, and make the client of the store, without a request to it. Raises
        OptionError for what the plugin refuses when it is configured."""
        self.options.keys.check()
        if isinstance(self._store, BucketStore):
            self.options.check_account()
            try:
                self._store.client.check_settings()
            except OptionError as error:
                names = ", ".join(self.options.store_properties)
                raise OptionError(f"no client of {self.options.root} can be made with {names}: {error.what}") from None

    @property
    def is_marked(self) -> bool:
        """True if the folder has the marker by which `copy` and `delete` recognise it; always for a bucket."""
        return not isinstance(self._store, FolderStore) or self._store.is_marked

    def mark(self) -> None:
        """Create the folder if it is missing, and its marker. Raises OSError."""
        if isinstance(self._store, FolderStore):
            self._store.mark()

    def holds(self, segment: RemoteSegment) -> bool:
        """True if the object that makes the segment complete is there, as a regular file. Raises RemoteStorageError."""
        path = self._path(segment, UPLOAD_ORDER[self.options.layout][-1])
        try:
            self._store.open(path).close()
        except (FileNotFoundError, NotADirectoryError, NotRegularFile):
            return False
        except OSError as error:
            raise RemoteStorageError(f"{self.options.root} cannot be read: {error.strerror}", path=path) from None
        return True

    # Writing.

    def copy(self, segment: RemoteSegment, data: LogSegmentData, throttle: Throttle = lambda _: None) -> bytes | None:
        """Copy a segment, and return its custom metadata for `__remote_log_metadata`.

        The object that makes the segment complete is written last. After a failure the written objects are deleted if
        possible; otherwise `delete` does so later.

        Raises:
            RemoteStorageError: If an object cannot be written.
            OptionError, KeyNotGiven: If the key pair cannot be used.
        """

        def put(file: RemoteFile, pieces: Pieces, size: int) -> int:
            return self.put(segment, file, pieces, size, throttle)

        with self._errors(segment):
            try:
                return upload_segment(put, self.options, segment, data)
            except BaseException:
                with suppress(OSError):
                    self.remove(segment)
                raise

    def delete(self, segment: RemoteSegment) -> None:
        """Delete the objects of a segment, first the one that makes it complete; a no-op without objects.

        Raises RemoteStorageError.
        """
        with self._errors(segment):
            self.remove(segment)
        if self._indexes is not None:
            self._indexes.forget(segment)
        self._chunks.forget(lambda key: isinstance(key, tuple) and key[0] == segment.segment_id)

    def remove(self, segment: RemoteSegment) -> None:
        """Delete a segment's objects, first the one that makes it complete, which is the last one written. Raises
        OSError."""
        *others, last = (self._path(segment, file) for file in UPLOAD_ORDER[self.options.layout])
        self._store.delete([last])
        self._store.delete(others[::-1])

    def put(self, segment: RemoteSegment, file: RemoteFile, pieces: Pieces, size: int, throttle: Throttle) -> int:
        """Write an object of a segment, and return its size. Raises OSError, and errors of `pieces`."""
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

    def knows_transaction_index(self, segment: RemoteSegment) -> bool:
        """True if the length of the segment's transaction index is written down, so that none of its entries is lost.

        LocalTieredStorage and manifests before October 2023 do not have it, and a manifest without a transaction index
        tells nothing of a segment copied by a Kafka before 3.9, or one whose metadata says that there is one. Raises as
        `fetch`.
        """
        if self.options.layout is Layout.LOCAL_TIERED:
            return False
        with self._errors(segment):
            manifest, _ = self._stored(segment)
        place = None if manifest.indexes is None else manifest.indexes.get(RemoteFile.TRANSACTION_INDEX)
        return place is not None and place.size > 0

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
        try:
            manifest = parse_manifest(self._store.read_all(path, MOST_OF_MANIFEST))
            manifest.check_is_of(segment.partition, segment.start_offset, segment.segment_id)
            size = manifest.chunks.original_file_size
            if size != segment.size:
                raise CorruptManifest(
                    f"chunkIndex.originalFileSize is {size}, expected the {segment.size} bytes that "
                    "__remote_log_metadata says",
                    hint="the manifest is damaged, or another segment was copied over this one",
                )
            check_chunk_size(manifest, str(segment), path)
            return manifest, ChunkCodec.of(manifest, self.options.keys)
        except KafkalogError as error:
            raise error.at(path=path) from None

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
            own_key = remote_key(Layout.AIVEN, segment, file).removesuffix(file.value)
            if said_key not in (None, own_key):  # the plugin makes no other, and it could be another topic's
                raise CorruptRemoteMetadata(
                    f"the custom metadata of the segment says that its objects lie at {said_key[:200]!r}, expected "
                    f"{own_key}"
                )
        return joined_below(self.options.root, remote_key(self.options.layout, segment, file, prefix))

    @contextmanager
    def _errors(self, segment: RemoteSegment) -> Iterator[None]:
        name = f"{segment.partition.topic}-{segment.partition.partition}"
        try:
            yield
        except FileNotFoundError as error:
            if isinstance(self._store, FolderStore):
                try:
                    self._store.check()
                except OSError as away:
                    raise RemoteStorageError(str(away.strerror), topic_partition=name, path=away.filename) from None
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
