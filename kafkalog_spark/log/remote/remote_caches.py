"""Caches of what a broker reads of remote segments: pieces of a .log in memory, indexes on disk. Both are bounded in
bytes, drop what was used longest ago, and have each thing fetched by one thread at a time."""

from __future__ import annotations

import errno
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from kafkalog_spark.format.atomic_file import read_whole, replace_file
from kafkalog_spark.format.partition_metadata import uuid_to_text
from kafkalog_spark.log.tiered.remote_names import INDEX_FILES, RemoteFile, RemoteSegment

_THREADS = 4
"""Threads that fetch pieces, for all readers: glibc keeps freed buffers for each thread that allocated them."""


class _Piece(NamedTuple):
    size: int
    data: Future[bytes]


class ChunkCache:
    """LRU cache of pieces of at most `most` bytes together, or of one larger piece. Thread-safe.

    At most half of `most` bytes is fetched at a time, or one larger piece: a fetch holds the bytes of the object
    too, which are not counted.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._fetching = 0  # bytes of the pieces that are being fetched
        self._lock = threading.Lock()
        self._fetched = threading.Condition(self._lock)
        self._pieces: OrderedDict[Hashable, _Piece] = OrderedDict()  # the one used last comes last
        self._bytes = 0
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="kafkalog-remote-chunks")

    def __contains__(self, key: Hashable) -> bool:
        return key in self._pieces

    def get(self, key: Hashable, size: int, fetch: Callable[[], bytes]) -> bytes:
        """The piece of `size` bytes, held, or by `fetch` in another thread. Raises what `fetch` raises, and OSError
        once the cache is closed."""
        with self._lock:
            while (held := self._held(key)) is None and not self._has_room(size):
                self._fetched.wait()
            piece = held or self._entered(key, size)
        if held is None:
            self._begin(key, piece, fetch)
        return piece.data.result()

    def fetch_ahead(self, key: Hashable, size: int, fetch: Callable[[], bytes]) -> None:
        """Have another thread fetch the piece, unless it is held, there is no room for it, or the cache is closed."""
        with self._lock:
            if size > self._most or key in self._pieces or not self._has_room(size):
                return
            piece = self._entered(key, size)
        self._begin(key, piece, fetch)

    def forget(self, wanted: Callable[[Hashable], bool]) -> None:
        """Drop the pieces whose key is `wanted`: their segment was deleted."""
        with self._lock:
            for key in [key for key in self._pieces if wanted(key)]:
                self._bytes -= self._pieces.pop(key).size

    def close(self) -> None:
        """Stop fetching, and drop everything. Does not wait for requests that a store leaves without an answer."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.forget(lambda _: True)

    # The lock is held for these.

    def _held(self, key: Hashable) -> _Piece | None:
        piece = self._pieces.get(key)
        if piece is not None:
            self._pieces.move_to_end(key)
        return piece

    def _has_room(self, size: int) -> bool:
        return not self._fetching or self._fetching + size <= self._most // 2

    def _entered(self, key: Hashable, size: int) -> _Piece:
        piece = self._pieces[key] = _Piece(size, Future())
        self._bytes += size
        self._fetching += size
        for other in list(self._pieces):
            if self._bytes <= self._most:
                break
            if self._pieces[other].data.done():
                self._bytes -= self._pieces.pop(other).size
        return piece

    # The lock is not held for these.

    def _begin(self, key: Hashable, piece: _Piece, fetch: Callable[[], bytes]) -> None:
        closed = OSError(errno.ECANCELED, "the cache of chunks is closed")
        try:
            filled = self._threads.submit(self._fill, key, piece, fetch)
        except RuntimeError:
            self._failed(key, piece, closed)
        else:
            filled.add_done_callback(lambda filled: self._failed(key, piece, closed) if filled.cancelled() else None)

    def _fill(self, key: Hashable, piece: _Piece, fetch: Callable[[], bytes]) -> None:
        try:
            data = fetch()
        except BaseException as error:  # noqa: BLE001 - whoever waits for the piece gets it
            self._failed(key, piece, error)
        else:
            piece.data.set_result(data)
            self._end(piece)

    def _failed(self, key: Hashable, piece: _Piece, error: BaseException) -> None:
        with self._lock:
            if self._pieces.get(key) is piece:
                self._bytes -= self._pieces.pop(key).size
        piece.data.set_exception(error)
        self._end(piece)

    def _end(self, piece: _Piece) -> None:
        with self._lock:
            self._fetching -= piece.size
            self._fetched.notify_all()


V = TypeVar("V")


class WeightedCache(Generic[V]):
    """LRU cache of values with a total weight of at most `most`, or of one heavier value. Thread-safe; two threads that
    need the same value at once may both make it.

    Args:
        weight: Returns the weight of a value, at least 1, in the unit of `most`.
    """

    def __init__(self, most: int, weight: Callable[[V], int]) -> None:
        self._most, self._weight = most, weight
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, V] = OrderedDict()  # the one used last comes last
        self._total = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value of `key`, by `make` if it is not held. Raises what `make` raises."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = make()
        with self._lock:
            if key not in self._values:
                self._values[key] = value
                self._total += self._weight(value)
            while self._total > self._most and len(self._values) > 1:
                _, oldest = self._values.popitem(last=False)
                self._total -= self._weight(oldest)
        return value


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
