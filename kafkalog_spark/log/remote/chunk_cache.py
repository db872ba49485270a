"""In-memory cache of decoded pieces of remote .log files."""

from __future__ import annotations

import errno
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

_THREADS = 4
"""Number of threads that fetch pieces. It is small, because glibc keeps freed memory for each thread."""


class _Piece(NamedTuple):
    size: int
    data: Future[bytes]


class ChunkCache:
    """LRU cache of pieces with a limit on their total size. Thread-safe; concurrent requests for a piece fetch it once.

    At most half of the limit is fetched at a time, because the stored bytes that a fetch decodes are not counted. A
    piece above a limit is allowed if it is the only one.

    Args:
        max_bytes: Limit on the total size of the pieces in bytes.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._fetching_bytes = 0  # bytes of the pieces that are being fetched
        self._lock = threading.Lock()
        self._fetched = threading.Condition(self._lock)
        self._pieces: OrderedDict[Hashable, _Piece] = OrderedDict()  # in order of the last use
        self._bytes = 0
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="kafkalog-remote-chunks")

    def __contains__(self, key: Hashable) -> bool:
        return key in self._pieces

    def get(self, key: Hashable, size: int, fetch: Callable[[], bytes]) -> bytes:
        """Return a piece; if it is not cached, run `fetch` in another thread.

        Args:
            key: Key of the piece.
            size: Size of the piece in bytes.
            fetch: Returns the piece.

        Raises:
            OSError: If the cache is closed.
            Exception: Any error of `fetch`.
        """
        with self._lock:
            while (cached := self._cached(key)) is None and not self._has_room(size):
                self._fetched.wait()
            piece = cached or self._add(key, size)
        if cached is None:
            self._start_fetch(key, piece, fetch)
        return piece.data.result()

    def fetch_ahead(self, key: Hashable, size: int, fetch: Callable[[], bytes]) -> None:
        """Run `fetch` in another thread, unless the piece is cached, there is no room, or the cache is closed."""
        with self._lock:
            if size > self._max_bytes or key in self._pieces or not self._has_room(size):
                return
            piece = self._add(key, size)
        self._start_fetch(key, piece, fetch)

    def forget(self, should_drop: Callable[[Hashable], bool]) -> None:
        """Drop the pieces for whose keys `should_drop` returns True."""
        with self._lock:
            for key in [key for key in self._pieces if should_drop(key)]:
                self._bytes -= self._pieces.pop(key).size

    def close(self) -> None:
        """Stop fetching, and drop all pieces. Does not wait for running requests."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        self.forget(lambda _: True)

    def _cached(self, key: Hashable) -> _Piece | None:
        """Return a cached piece and mark it as used. The caller holds the lock."""
        piece = self._pieces.get(key)
        if piece is not None:
            self._pieces.move_to_end(key)
        return piece

    def _has_room(self, size: int) -> bool:
        """Return True if a fetch of `size` bytes may start. The caller holds the lock."""
        return not self._fetching_bytes or self._fetching_bytes + size <= self._max_bytes // 2

    def _add(self, key: Hashable, size: int) -> _Piece:
        """Add a piece whose fetch starts, and evict others. The caller holds the lock."""
        piece = self._pieces[key] = _Piece(size, Future())
        self._bytes += size
        self._fetching_bytes += size
        for other in list(self._pieces):
            if self._bytes <= self._max_bytes:
                break
            if self._pieces[other].data.done():
                self._bytes -= self._pieces.pop(other).size
        return piece

    def _start_fetch(self, key: Hashable, piece: _Piece, fetch: Callable[[], bytes]) -> None:
        closed = OSError(errno.ECANCELED, "the cache of chunks is closed")
        try:
            fetched = self._executor.submit(self._fill, key, piece, fetch)
        except RuntimeError:
            self._fail(key, piece, closed)
        else:
            fetched.add_done_callback(lambda fetched: self._fail(key, piece, closed) if fetched.cancelled() else None)

    def _fill(self, key: Hashable, piece: _Piece, fetch: Callable[[], bytes]) -> None:
        try:
            data = fetch()
        except BaseException as error:  # noqa: BLE001 - raised in the threads that wait for the piece
            self._fail(key, piece, error)
        else:
            piece.data.set_result(data)
            self._end_fetch(piece)

    def _fail(self, key: Hashable, piece: _Piece, error: BaseException) -> None:
        with self._lock:
            if self._pieces.get(key) is piece:
                self._bytes -= self._pieces.pop(key).size
        piece.data.set_exception(error)
        self._end_fetch(piece)

    def _end_fetch(self, piece: _Piece) -> None:
        with self._lock:
            self._fetching_bytes -= piece.size
            self._fetched.notify_all()
