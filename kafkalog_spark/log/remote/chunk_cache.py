"""Cache of pieces of remote segments in memory, bounded in bytes; each piece is fetched by one thread at a time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

_THREADS = 8  # pieces read ahead at once, of all who read


class _Piece(NamedTuple):
    size: int
    data: Future[bytes]


class ChunkCache:
    """The pieces used last, of `most` bytes together; more only while as many are being fetched. Threads share it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._pieces: OrderedDict[Hashable, _Piece] = OrderedDict()  # the one used last comes last
        self._bytes = 0
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="kafkalog-tier")

    def __contains__(self, key: Hashable) -> bool:
        return key in self._pieces

    @property
    def held_bytes(self) -> int:
        """Bytes of the pieces held and of those being fetched."""
        return self._bytes

    def get(self, key: Hashable, size: int, fetch: Callable[[], bytes]) -> bytes:
        """The piece of `size` bytes, by `fetch` where it is not held; waits for another thread that fetches it. Raises
        what `fetch` raises."""
        data, is_new = self._entered(key, size)
        if is_new:
            self._fill(key, data, fetch)
        return data.result()

    def fetch_ahead(self, key: Hashable, size: int, fetch: Callable[[], bytes]) -> None:
        """Have the piece fetched by another thread, unless it is held; nothing where it is larger than all that may be
        held, or the cache is closed."""
        if size > self._most or key in self._pieces:
            return
        data, is_new = self._entered(key, size)
        if is_new:
            try:
                self._threads.submit(self._fill, key, data, fetch)
            except RuntimeError as error:  # closed meanwhile
                self._drop(key, data)
                data.set_exception(error)

    def forget(self, wanted: Callable[[Hashable], bool]) -> None:
        """Drop the pieces whose key is `wanted`: their segment was deleted."""
        with self._lock:
            for key in [key for key in self._pieces if wanted(key)]:
                self._bytes -= self._pieces.pop(key).size

    def close(self) -> None:
        """Stop reading ahead, and drop everything."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self.forget(lambda _: True)

    def _entered(self, key: Hashable, size: int) -> tuple[Future[bytes], bool]:
        with self._lock:
            piece = self._pieces.get(key)
            if piece is not None:
                self._pieces.move_to_end(key)
                return piece.data, False
            piece = self._pieces[key] = _Piece(size, Future())
            self._bytes += size
            for other in list(self._pieces):
                if self._bytes <= self._most:
                    break
                if self._pieces[other].data.done():
                    self._bytes -= self._pieces.pop(other).size
            return piece.data, True

    def _fill(self, key: Hashable, data: Future[bytes], fetch: Callable[[], bytes]) -> None:
        try:
            data.set_result(fetch())
        except BaseException as error:  # noqa: BLE001 - whoever waits for the piece gets it
            self._drop(key, data)
            data.set_exception(error)

    def _drop(self, key: Hashable, data: Future[bytes]) -> None:
        with self._lock:
            piece = self._pieces.get(key)
            if piece is not None and piece.data is data:
                self._bytes -= self._pieces.pop(key).size
