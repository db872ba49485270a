"""What the cache of chunks fetches at a time, and holds."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from kafkalog_spark.log.remote.chunk_cache import _THREADS, ChunkCache
from kafkalog_spark.log.remote.weighted_cache import WeightedCache


class Fetches:
    """Fetches that wait until they may end."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Event()
        self.running = self.most = 0
        self._lock = threading.Lock()

    def fetch(self) -> bytes:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        self.begun.release()
        assert self.may_end.wait(60)
        with self._lock:
            self.running -= 1
        return b"data"


def got(cache: ChunkCache, fetches: Fetches, count: int, size: int) -> list[Future[bytes]]:
    threads = ThreadPoolExecutor(count)
    return [threads.submit(cache.get, number, size, fetches.fetch) for number in range(count)]


@pytest.mark.parametrize(("size", "at_once"), [(25, 2), (45, 1), (1000, 1)])
def test_read_ahead_fetches_at_most_half_of_the_cache_or_one_piece(size: int, at_once: int) -> None:
    cache, fetches = ChunkCache(100), Fetches()
    pieces = got(cache, fetches, 8, size)
    for _ in range(at_once):
        assert fetches.begun.acquire(timeout=60)
    assert not fetches.begun.acquire(timeout=0.05)
    fetches.may_end.set()
    assert {piece.result(60) for piece in pieces} == {b"data"}
    assert fetches.most == at_once
    cache.close()


def test_no_read_ahead_without_room_in_the_cache() -> None:
    cache, fetches = ChunkCache(100), Fetches()
    pieces = got(cache, fetches, 1, 45)
    assert fetches.begun.acquire(timeout=60)
    cache.fetch_ahead("ahead", 10, fetches.fetch)
    assert "ahead" not in cache
    fetches.may_end.set()
    assert pieces[0].result(60) == b"data"
    cache.fetch_ahead("ahead", 10, fetches.fetch)
    assert "ahead" in cache
    cache.close()


def test_failed_fetch_frees_its_room_and_is_retried() -> None:
    cache = ChunkCache(100)

    def fail() -> bytes:
        raise OSError("no such object")

    for _ in range(2):
        with pytest.raises(OSError, match="no such object"):
            cache.get("piece", 50, fail)
    assert cache.get("piece", 50, lambda: b"data") == b"data"
    cache.close()


def test_close_ends_waits_for_pieces_read_ahead() -> None:
    cache, fetches = ChunkCache(100), Fetches()
    for number in range(_THREADS + 1):  # the last one waits for a thread
        cache.fetch_ahead(number, 1, fetches.fetch)
    last = cache._pieces[_THREADS].data
    closing = threading.Thread(target=cache.close)
    closing.start()
    with pytest.raises(OSError, match="is closed"):
        last.result(60)
    fetches.may_end.set()
    closing.join(60)
    assert not closing.is_alive()


def test_weighted_cache_holds_the_least_recently_used_values_or_one_oversized() -> None:
    cache = WeightedCache[int](100, lambda value: value)
    made: list[int] = []

    def get(value: int) -> int:
        return cache.get(value, lambda: made.append(value) or value)  # type: ignore[func-returns-value]

    for value in (40, 50, 40, 20):  # without 50, which was used longest ago
        assert get(value) == value
    assert (made, len(cache)) == ([40, 50, 20], 2)
    assert get(40) == 40
    assert get(1000) == 1000
    assert len(cache) == 1
    assert get(50) == 50
    assert (made, len(cache)) == ([40, 50, 20, 1000, 50], 1)
