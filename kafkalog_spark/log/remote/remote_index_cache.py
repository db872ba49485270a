"""Caches of what a broker reads of remote segments: pieces of a .log in memory, indexes on disk. Both are bounded in
bytes, drop what was used longest ago, and have each thing fetched by one thread at a time."""

from __future__ import annotations

import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from uuid import UUID

from kafkalog_spark.format.atomic_file import read_whole, replace_file
from kafkalog_spark.format.partition_metadata import uuid_to_text
from kafkalog_spark.log.tiered.remote_names import INDEX_FILES, RemoteFile, RemoteSegment

BoundedDirectory = tuple[Path, Callable[[], int]]  # where the cache is, and how many bytes it may have now
_LOCKS = 64  # segments whose indexes are fetched at once; those that share a lock wait for each other


class RemoteIndexCache:
    """The indexes used last, of `most()` bytes together, in `remote-log-index-cache` (Kafka's class of that name).
    Threads share it. Raises OSError where the directory cannot be emptied.

    File names are Kafka's: `<start offset>_<segment id>.index`, `.timeindex` and `.txnindex`, which is empty for a
    segment without aborted transactions. It begins empty: what a crash may have left is not believed.
    """

    def __init__(self, directory: Path, most: Callable[[], int]) -> None:
        self._directory = directory
        self._most = most
        self._lock = threading.Lock()
        self._fetching = [threading.Lock() for _ in range(_LOCKS)]
        self._sizes: OrderedDict[tuple[int, UUID], int] = OrderedDict()  # the one used last comes last
        self._bytes = 0
        if directory.is_dir() and not directory.is_symlink():
            shutil.rmtree(directory)
        else:
            directory.unlink(missing_ok=True)
        directory.mkdir(parents=True)

    def get(self, segment: RemoteSegment, kind: RemoteFile, fetch: Callable[[], Mapping[RemoteFile, bytes]]) -> bytes:
        """An index of INDEX_FILES, by `fetch`, which gets all of them, where they are not held. Raises what `fetch`
        raises; a disk that takes nothing keeps nothing back."""
        key = (segment.start_offset, segment.segment_id)
        data = self._held(key, kind)
        if data is not None:
            return data
        with self._fetching[hash(key) % _LOCKS]:
            data = self._held(key, kind)
            if data is not None:
                return data
            indexes = fetch()
            self._keep(key, indexes)
        return indexes.get(kind, b"")

    def forget(self, segment: RemoteSegment) -> None:
        """Drop the indexes of a segment that was deleted."""
        with self._lock:
            self._remove((segment.start_offset, segment.segment_id))

    def _path(self, key: tuple[int, UUID], kind: RemoteFile) -> Path:
        return self._directory / f"{key[0]}_{uuid_to_text(key[1])}{kind.value}"

    def _held(self, key: tuple[int, UUID], kind: RemoteFile) -> bytes | None:
        with self._lock:
            if key not in self._sizes:
                return None
            self._sizes.move_to_end(key)
        try:
            return read_whole(self._path(key, kind), 1 << 31)
        except OSError:  # removed since, by whoever needed the room
            return None

    def _keep(self, key: tuple[int, UUID], indexes: Mapping[RemoteFile, bytes]) -> None:
        size = sum(len(indexes.get(kind, b"")) for kind in INDEX_FILES)
        most = self._most()
        if size > most:
            return
        try:
            for kind in INDEX_FILES:
                replace_file(self._path(key, kind), indexes.get(kind, b""), sync=False)
        except OSError:
            for kind in INDEX_FILES:
                self._path(key, kind).unlink(missing_ok=True)
            return
        with self._lock:
            self._bytes += size - self._sizes.pop(key, 0)
            self._sizes[key] = size
            while self._bytes > most:
                self._remove(next(iter(self._sizes)))

    def _remove(self, key: tuple[int, UUID]) -> None:
        size = self._sizes.pop(key, None)
        if size is None:
            return
        self._bytes -= size
        for kind in INDEX_FILES:
            self._path(key, kind).unlink(missing_ok=True)
