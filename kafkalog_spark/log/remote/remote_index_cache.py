"""Cache of the indexes of remote segments on disk (Kafka's RemoteIndexCache)."""

from __future__ import annotations

import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from kafkalog_spark.format.atomic_file import replace_file
from kafkalog_spark.format.partition_metadata import uuid_to_text
from kafkalog_spark.format.regular_file import read_whole
from kafkalog_spark.log.tiered.object_keys import INDEX_FILES, RemoteFile
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment

_LOCKS = 64  # number of fetch locks; segments that share a lock are fetched one after the other


class BoundedDirectory(NamedTuple):
    """Directory of a cache, and a function that returns its current size limit in bytes."""

    path: Path
    max_bytes: Callable[[], int]


class RemoteIndexCache:
    """LRU cache of the indexes of remote segments, limited in bytes.

    Thread-safe; concurrent requests for a segment fetch its indexes once. File names are Kafka's: `<start
    offset>_<segment ID>.index`, `.timeindex` and `.txnindex`. The .txnindex is empty for a segment without aborted
    transactions. The constructor empties the directory, because a crash may have left incomplete files.

    Args:
        directory: Directory of the cache, in Kafka `remote-log-index-cache`.
        max_bytes: Returns the current size limit in bytes.

    Raises:
        OSError: If the directory cannot be emptied.
    """

    def __init__(self, directory: Path, max_bytes: Callable[[], int]) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._fetch_locks = [threading.Lock() for _ in range(_LOCKS)]
        self._sizes: OrderedDict[tuple[int, UUID], int] = OrderedDict()  # in order of the last use
        self._bytes = 0
        if directory.is_dir() and not directory.is_symlink():
            shutil.rmtree(directory)
        else:
            directory.unlink(missing_ok=True)
        directory.mkdir(parents=True)

    def get(self, segment: RemoteSegment, index: RemoteFile, fetch: Callable[[], Mapping[RemoteFile, bytes]]) -> bytes:
        """Return an index of a segment. If it is not cached, fetch all indexes of the segment.

        If the indexes cannot be written to disk, they are returned without being cached.

        Args:
            segment: Remote segment.
            index: One of INDEX_FILES.
            fetch: Returns all indexes of the segment. Its errors are raised unchanged.
        """
        key = (segment.start_offset, segment.segment_id)
        data = self._read_cached(key, index)
        if data is not None:
            return data
        with self._fetch_locks[hash(key) % _LOCKS]:
            data = self._read_cached(key, index)
            if data is not None:
                return data
            indexes = fetch()
            self._store(key, indexes)
        return indexes.get(index, b"")

    def forget(self, segment: RemoteSegment) -> None:
        """Drop the indexes of a segment that was deleted."""
        with self._lock:
            self._remove((segment.start_offset, segment.segment_id))

    def _path(self, key: tuple[int, UUID], index: RemoteFile) -> Path:
        return self._directory / f"{key[0]}_{uuid_to_text(key[1])}{index.value}"

    def _read_cached(self, key: tuple[int, UUID], index: RemoteFile) -> bytes | None:
        with self._lock:
            if key not in self._sizes:
                return None
            self._sizes.move_to_end(key)
        try:
            return read_whole(self._path(key, index), 1 << 31)
        except OSError:  # another thread has evicted the segment since
            return None

    def _store(self, key: tuple[int, UUID], indexes: Mapping[RemoteFile, bytes]) -> None:
        size = sum(len(indexes.get(index, b"")) for index in INDEX_FILES)
        max_bytes = self._max_bytes()
        if size > max_bytes:
            return
        try:
            for index in INDEX_FILES:
                replace_file(self._path(key, index), indexes.get(index, b""), sync=False)
        except OSError:
            for index in INDEX_FILES:
                self._path(key, index).unlink(missing_ok=True)
            return
        with self._lock:
            self._bytes += size - self._sizes.pop(key, 0)
            self._sizes[key] = size
            while self._bytes > max_bytes:
                self._remove(next(iter(self._sizes)))

    def _remove(self, key: tuple[int, UUID]) -> None:
        size = self._sizes.pop(key, None)
        if size is None:
            return
        self._bytes -= size
        for index in INDEX_FILES:
            self._path(key, index).unlink(missing_ok=True)
