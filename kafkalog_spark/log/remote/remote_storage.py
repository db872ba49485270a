"""Remote storage of a broker, for copying, reading and deleting segments (Kafka: RemoteStorageManager).

It supports the layouts AIVEN and LOCAL_TIERED, in a folder or a bucket. All calls block, so call them from worker
threads, which may share one RemoteStorage.

A segment is complete when its last object exists: Aiven's manifest, or LocalTieredStorage's producer snapshot. Objects
become visible only when they are complete.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from kafkalog_spark.errors import (
    CorruptManifest,
    CorruptRemoteMetadata,
    KafkalogError,
    OptionError,
    RemoteResourceNotFound,
    RemoteStorageError,
)
from kafkalog_spark.format.regular_file import NotRegularFile
from kafkalog_spark.format.relative_path import joined_below
from kafkalog_spark.log.remote.bucket_store import BucketStore
from kafkalog_spark.log.remote.chunk_cache import ChunkCache
from kafkalog_spark.log.remote.folder_store import FolderStore
from kafkalog_spark.log.remote.remote_index_cache import BoundedDirectory, RemoteIndexCache
from kafkalog_spark.log.remote.remote_indexes import read_indexes
from kafkalog_spark.log.remote.remote_segment_file import DECODED_BLOCK, check_chunk_size
from kafkalog_spark.log.remote.remote_storage_options import RemoteStorageOptions
from kafkalog_spark.log.remote.segment_upload import UPLOAD_ORDER, LogSegmentData, Pieces, upload_segment
from kafkalog_spark.log.remote.weighted_cache import WeightedCache
from kafkalog_spark.log.tiered.chunk_codec import ChunkCodec
from kafkalog_spark.log.tiered.chunks import ChunkIndex
from kafkalog_spark.log.tiered.custom_metadata import decode_object_key
from kafkalog_spark.log.tiered.manifest import MAX_MANIFEST_SIZE, SegmentManifest, parse_manifest
from kafkalog_spark.log.tiered.object_keys import INDEX_FILES, Layout, RemoteFile, remote_key
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment
from kafkalog_spark.store.interface import FileFacts
from kafkalog_spark.store.paths import is_local, parse_path

Throttle = Callable[[int], None]
"""Called with the number of bytes to send next; blocks while a quota forbids sending them."""

_LARGE_CHUNK_SIZE = 16 << 20
"""Chunk size in bytes above which a block is a part of a chunk. Each block is then decoded from the start of the chunk,
which takes more time and less memory than decoding the whole chunk."""
_MANIFEST_CACHE_BYTES = 8 << 20
"""Capacity in bytes of the cache of manifests. A manifest of 256 chunks has 4 kB, but a segment may have a million
chunks."""
_SMALL_MANIFEST_BYTES = 2 << 10  # bytes of a manifest without the positions of its chunks


class RemoteStorage:
    """Remote segments in the folder or bucket of `options`. Thread-safe.

    Args:
        options: Location, layout, encryption and caches.
        index_cache: Directory of the cache of indexes; None to cache no indexes.

    Raises:
        OptionError: If the location is not valid.
        OSError: If the directory of the cache cannot be used.
    """

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
        self._manifests = WeightedCache[tuple[SegmentManifest, ChunkCodec]](_MANIFEST_CACHE_BYTES, _weight_of)

    def stop_retries(self) -> None:
        """Stop retrying: requests that fail later or wait for a retry raise their error."""
        self._stopping.set()

    def close(self) -> None:
        """Stop read-ahead and retries, without waiting for running requests."""
        self.stop_retries()
        self._chunks.close()

    def check_settings(self) -> None:
        """Read the key files and create the client of the store, without sending a request.

        Raises:
            OptionError: If a setting is one that the plugin refuses when it is configured.
        """
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
        """True if the folder contains the marker that `copy` and `delete` require, or the storage is a bucket."""
        return not isinstance(self._store, FolderStore) or self._store.is_marked

    def mark(self) -> None:
        """Create the folder if it is missing, and its marker. Raises OSError."""
        if isinstance(self._store, FolderStore):
            self._store.mark()

    def holds(self, segment: RemoteSegment) -> bool:
        """Return True if the segment is complete: its last object is a regular file. Raises RemoteStorageError."""
        path = self._path(segment, UPLOAD_ORDER[self.options.layout][-1])
        try:
            self._store.open(path).close()
        except (FileNotFoundError, NotADirectoryError, NotRegularFile):
            return False
        except OSError as error:
            raise RemoteStorageError(f"{self.options.root} cannot be read: {error.strerror}", path=path) from None
        return True

    def copy(self, segment: RemoteSegment, data: LogSegmentData, throttle: Throttle = lambda _: None) -> bytes | None:
        """Copy a segment, and return its custom metadata for `__remote_log_metadata`.

        The object that makes the segment complete is written last. After a failure, the written objects are deleted if
        possible; otherwise call `delete` later.

        Args:
            segment: Metadata of the segment.
            data: Files of the segment.
            throttle: Called before bytes are sent.

        Raises:
            RemoteStorageError: If an object cannot be written.
            OptionError, KeyNotGiven: If the key pair cannot be used.
        """

        def put(file: RemoteFile, pieces: Pieces, size: int) -> int:
            return self._put(segment, file, pieces, size, throttle)

        with self._translate_errors(segment):
            try:
                return upload_segment(put, self.options, segment, data)
            except BaseException:
                with suppress(OSError):
                    self._remove(segment)
                raise

    def delete(self, segment: RemoteSegment) -> None:
        """Delete the objects of a segment, first the object that makes it complete. Idempotent.

        Raises RemoteStorageError.
        """
        with self._translate_errors(segment):
            self._remove(segment)
        if self._indexes is not None:
            self._indexes.forget(segment)
        self._chunks.forget(lambda key: isinstance(key, tuple) and key[0] == segment.segment_id)

    def fetch(self, segment: RemoteSegment, begin: int, end: int) -> bytes:
        """Return the bytes [begin, end) of the segment's .log, or fewer at the end of the .log.

        Raises:
            RemoteResourceNotFound: If the segment does not exist.
            RemoteStorageError: If an object cannot be read.
            CorruptManifest, CorruptChunk, UnsupportedFormat: If the objects are damaged or not supported.
            KeyNotGiven: If the private key of an encrypted segment is missing.
        """
        with self._translate_errors(segment):
            if self.options.layout is Layout.LOCAL_TIERED:
                return self._read_plain(segment, segment.size, begin, end)
            manifest, _ = self._manifest_and_codec(segment)
            size = manifest.chunks.original_file_size
            if manifest.is_plain and is_local(self.options.root):
                return self._read_plain(segment, size, begin, end)
            return self._read_blocks(segment, manifest.chunks, begin, min(end, size))

    def fetch_index(self, segment: RemoteSegment, kind: RemoteFile) -> bytes:
        """Return a decoded index, producer snapshot or leader-epoch checkpoint; empty if there is none.

        Raises the errors of `fetch`.
        """
        with self._translate_errors(segment):
            if self._indexes is not None and kind in INDEX_FILES:
                return self._indexes.get(segment, kind, partial(self._read_indexes, segment, INDEX_FILES))
            return self._read_indexes(segment, [kind]).get(kind, b"")

    def knows_transaction_index(self, segment: RemoteSegment) -> bool:
        """Return True if the manifest has the size of the transaction index, so that a truncated index is detected.

        LocalTieredStorage and manifests from before October 2023 do not have the size. A manifest without a transaction
        index does not mean that no transaction was aborted, because Kafka before 3.9 omitted the index. Raises the
        errors of `fetch`.
        """
        if self.options.layout is Layout.LOCAL_TIERED:
            return False
        with self._translate_errors(segment):
            manifest, _ = self._manifest_and_codec(segment)
        index_range = None if manifest.indexes is None else manifest.indexes.get(RemoteFile.TRANSACTION_INDEX)
        return index_range is not None and index_range.size > 0

    def _remove(self, segment: RemoteSegment) -> None:
        """Delete the objects of a segment in reverse order of their upload. Raises OSError."""
        *others, last = (self._path(segment, file) for file in UPLOAD_ORDER[self.options.layout])
        self._store.delete([last])
        self._store.delete(others[::-1])

    def _put(self, segment: RemoteSegment, file: RemoteFile, pieces: Pieces, size: int, throttle: Throttle) -> int:
        """Write an object of a segment, and return its size. Raises OSError and the errors of `pieces`."""
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

    def _read_plain(self, segment: RemoteSegment, size: int, begin: int, end: int) -> bytes:
        end = min(end, size)
        if begin >= end:
            return b""
        path = self._path(segment, RemoteFile.LOG)
        return bytes(self._store.ranges(path, FileFacts(size, ""))(begin, end))

    def _read_blocks(self, segment: RemoteSegment, chunks: ChunkIndex, begin: int, end: int) -> bytes:
        """Read cached blocks. If the reads are sequential, fetch the next blocks ahead."""
        if begin >= end:
            return b""
        size, block = chunks.original_file_size, self._block_size(segment, chunks.original_chunk_size)
        first, last = begin // block, (end - 1) // block

        def piece(number: int) -> tuple[tuple[object, int], int, Callable[[], bytes]]:
            start, until = number * block, min((number + 1) * block, size)
            return (segment.segment_id, number), until - start, partial(self._read_decoded, segment, start, until)

        ahead = 1
        if first == 0 or (segment.segment_id, first - 1) in self._chunks:
            ahead = 1 + self.options.prefetch_bytes // block
        for number in range(first + 1, min(last + ahead, (size - 1) // block + 1)):
            self._chunks.fetch_ahead(*piece(number))
        parts = []
        for number in range(first, last + 1):
            start = number * block
            data = self._chunks.get(*piece(number))
            is_whole = begin <= start and len(data) <= end - start
            parts.append(data if is_whole else data[max(begin - start, 0) : end - start])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _block_size(self, segment: RemoteSegment, chunk_size: int) -> int:
        """Return the size of the blocks that are decoded and cached: whole chunks, or a part of a large chunk."""
        if chunk_size > _LARGE_CHUNK_SIZE and self._manifest_and_codec(segment)[1].can_decode_parts:
            return DECODED_BLOCK
        return chunk_size * max(DECODED_BLOCK // chunk_size, 1)

    def _read_decoded(self, segment: RemoteSegment, begin: int, end: int) -> bytes:
        manifest, codec = self._manifest_and_codec(segment)
        path = self._path(segment, RemoteFile.LOG)
        read = self._store.ranges(path, FileFacts(manifest.chunks.object_size, ""))
        if manifest.is_plain:
            return bytes(read(begin, end))
        if self._block_size(segment, manifest.chunks.original_chunk_size) < manifest.chunks.original_chunk_size:
            slices = manifest.chunks.slices(begin, end)
            parts = [codec.decode_chunk_part(read, chunk, first, last, path) for chunk, first, last in slices]
            return parts[0] if len(parts) == 1 else b"".join(parts)
        stored = manifest.chunks.object_range(begin, end)
        data = memoryview(read(stored.begin, stored.end))
        # The block consists of whole chunks. A single chunk is returned without a copy.
        chunks = [
            codec.decode_chunk(data[chunk.position - stored.begin :][: chunk.size], chunk, path)
            for chunk in map(manifest.chunks.chunk, stored.chunks)
        ]
        only = chunks[0]
        return only if len(chunks) == 1 and isinstance(only, bytes) else b"".join(chunks)

    def _manifest_and_codec(self, segment: RemoteSegment) -> tuple[SegmentManifest, ChunkCodec]:
        return self._manifests.get(segment, partial(self._read_manifest, segment))

    def _read_manifest(self, segment: RemoteSegment) -> tuple[SegmentManifest, ChunkCodec]:
        path = self._path(segment, RemoteFile.MANIFEST)
        try:
            manifest = parse_manifest(self._store.read_all(path, MAX_MANIFEST_SIZE))
            manifest.check_segment(segment.partition, segment.start_offset, segment.segment_id)
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
        manifest, codec = (
            (None, None) if self.options.layout is Layout.LOCAL_TIERED else self._manifest_and_codec(segment)
        )
        path_of = partial(self._path, segment)
        return read_indexes(self._store, path_of, manifest, codec, kinds, optional=RemoteFile.TRANSACTION_INDEX)

    def _path(self, segment: RemoteSegment, file: RemoteFile) -> str:
        prefix = self.options.key_prefix
        if file is not RemoteFile.MANIFEST and segment.custom_metadata and self.options.layout is Layout.AIVEN:
            recorded_prefix, recorded_key = decode_object_key(segment.custom_metadata)
            prefix = prefix if recorded_prefix is None else recorded_prefix
            expected_key = remote_key(Layout.AIVEN, segment, file).removesuffix(file.value)
            if recorded_key not in (
                None,
                expected_key,
            ):  # the plugin writes no other key, and another key may be that of another topic
                raise CorruptRemoteMetadata(
                    f"the custom metadata of the segment has the object key {recorded_key[:200]!r}, expected "
                    f"{expected_key}"
                )
        return joined_below(self.options.root, remote_key(self.options.layout, segment, file, prefix))

    @contextmanager
    def _translate_errors(self, segment: RemoteSegment) -> Iterator[None]:
        name = f"{segment.partition.topic}-{segment.partition.partition}"
        try:
            yield
        except FileNotFoundError as error:
            if isinstance(self._store, FolderStore):
                try:
                    self._store.check_marker()
                except OSError as unmounted:
                    raise RemoteStorageError(
                        str(unmounted.strerror), topic_partition=name, path=unmounted.filename
                    ) from None
            raise RemoteResourceNotFound(
                f"the remote segment {segment.name} does not exist: {error.strerror}",
                topic_partition=name,
                path=error.filename,
            ) from None
        except OSError as error:
            raise RemoteStorageError(
                f"the remote segment {segment.name}: {error.strerror}", topic_partition=name, path=error.filename
            ) from None
        except KafkalogError as error:
            raise error.at(topic_partition=name) from None


def _weight_of(stored: tuple[SegmentManifest, ChunkCodec]) -> int:
    return _SMALL_MANIFEST_BYTES + int(stored[0].chunks.positions.nbytes)
