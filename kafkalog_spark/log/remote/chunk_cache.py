"""Cache of pieces of remote .log files in memory, each fetched by one thread at a time."""

from __future__ import annotations

import errno
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

_THREADS = 4
"""Threads that fetch pieces, for all readers. They are few, because glibc keeps freed memory for each thread."""


class _Piece(NamedTuple):
    size: int
    data: Future[bytes]


class ChunkCache:
    """LRU cache of pieces of at most `most` bytes together, or of one larger piece. Thread-safe.

    At most `most` // 2 bytes, or one larger piece, are fetched at a time, because a fetch also has the bytes of the
    object in memory, which are not counted.
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
        """Return the piece of `key`; if it is not cached, run `fetch` in another thread.

        Args:
            key: Identifies the piece.
            size: Its number of bytes.
            fetch: Returns the piece.

        Raises:
            OSError: If the cache is closed.
            Exception: Any error of `fetch`.
        """
        with self._lock:
            while (held := self._held(key)) is None and not self._has_room(size):
                self._fetched.wait()
            piece = held or self._entered(key, size)
        if held is None:
            self._begin(key, piece, fetch)
        return piece.data.result()

    def fetch_ahead(self, key: Hashable, size: int, fetch: Callable[[], bytes]) -> None:
        """Run `fetch` in another thread, unless the piece is cached, there is no room, or the cache is closed."""
        with self._lock:
            if size > self._most or key in self._pieces or not self._has_room(size):
                return
            piece = self._entered(key, size)
        self._begin(key, piece, fetch)

    def forget(self, wanted: Callable[[Hashable], bool]) -> None:
        """Drop the pieces for whose key `wanted` is true."""
        with self._lock:
            for key in [key for key in self._pieces if wanted(key)]:
                self._bytes -= self._pieces.pop(key).size

    def close(self) -> None:
        """Stop fetching, and drop all pieces. Does not wait for running requests."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.forget(lambda _: True)

    # The caller of the next three methods holds the lock.

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

    # The caller of the methods below does not hold the lock.

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
        except BaseException as error:  # noqa: BLE001 - raised in the threads that wait for the piece
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
