"""Remote storage of a broker, for copying, reading and deleting segments (Kafka: RemoteStorageManager).

It supports the layouts AIVEN and LOCAL_TIERED, in a folder or a bucket. All calls block, so call them from worker
threads, which may share one RemoteStorage.

A segment is complete when its last object exists: Aiven's manifest, or LocalTieredStorage's producer snapshot. Objects
become visible only when they are complete.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from kafkalog_spark.errors import KafkalogError, OptionError, RemoteResourceNotFound, RemoteStorageError
from kafkalog_spark.format.regular_file import NotRegularFile
from kafkalog_spark.log.remote.bucket_store import BucketStore
from kafkalog_spark.log.remote.folder_store import FolderStore
from kafkalog_spark.log.remote.remote_blocks import RemoteBlocks
from kafkalog_spark.log.remote.remote_index_cache import BoundedDirectory, RemoteIndexCache
from kafkalog_spark.log.remote.remote_objects import RemoteObjects
from kafkalog_spark.log.remote.remote_storage_options import RemoteStorageOptions
from kafkalog_spark.log.remote.segment_upload import UPLOAD_ORDER, LogSegmentData, Pieces, upload_segment
from kafkalog_spark.log.tiered.object_keys import INDEX_FILES, Layout, RemoteFile
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment
from kafkalog_spark.store.interface import FileFacts
from kafkalog_spark.store.paths import is_local

Throttle = Callable[[int], None]
"""Called with the number of bytes to send next; blocks while a quota forbids sending them."""


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
        self._objects = RemoteObjects(options, self._stopping)
        self._store = self._objects.store
        self._indexes = None if index_cache is None else RemoteIndexCache(*index_cache)
        self._blocks = RemoteBlocks(self._objects)

    def stop_retries(self) -> None:
        """Stop retrying: requests that fail later or wait for a retry raise their error."""
        self._stopping.set()

    def close(self) -> None:
        """Stop read-ahead and retries, without waiting for running requests."""
        self.stop_retries()
        self._blocks.close()

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
        path = self._objects.path(segment, UPLOAD_ORDER[self.options.layout][-1])
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
        self._blocks.forget(segment)

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
            manifest, codec = self._objects.manifest_and_codec(segment)
            size = manifest.chunks.original_file_size
            if manifest.is_plain and is_local(self.options.root):
                return self._read_plain(segment, size, begin, end)
            return self._blocks.read(segment, manifest.chunks, codec, begin, min(end, size))

    def fetch_index(self, segment: RemoteSegment, kind: RemoteFile) -> bytes:
        """Return a decoded index, producer snapshot or leader-epoch checkpoint; empty if there is none.

        Raises the errors of `fetch`.
        """
        with self._translate_errors(segment):
            if self._indexes is not None and kind in INDEX_FILES:
                return self._indexes.get(segment, kind, partial(self._objects.read_indexes, segment, INDEX_FILES))
            return self._objects.read_indexes(segment, [kind]).get(kind, b"")

    def knows_transaction_index(self, segment: RemoteSegment) -> bool:
        """Return True if the manifest has the size of the transaction index, so that a truncated index is detected.

        LocalTieredStorage and manifests from before October 2023 do not have the size. A manifest without a transaction
        index does not mean that no transaction was aborted, because Kafka before 3.9 omitted the index. Raises the
        errors of `fetch`.
        """
        if self.options.layout is Layout.LOCAL_TIERED:
            return False
        with self._translate_errors(segment):
            manifest, _ = self._objects.manifest_and_codec(segment)
        index_range = None if manifest.indexes is None else manifest.indexes.get(RemoteFile.TRANSACTION_INDEX)
        return index_range is not None and index_range.size > 0

    def _remove(self, segment: RemoteSegment) -> None:
        """Delete the objects of a segment in reverse order of their upload. Raises OSError."""
        *others, last = (self._objects.path(segment, file) for file in UPLOAD_ORDER[self.options.layout])
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

        self._store.upload(self._objects.path(segment, file), throttled, size)
        return written

    def _read_plain(self, segment: RemoteSegment, size: int, begin: int, end: int) -> bytes:
        end = min(end, size)
        if begin >= end:
            return b""
        path = self._objects.path(segment, RemoteFile.LOG)
        return bytes(self._store.ranges(path, FileFacts(size, ""))(begin, end))

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
