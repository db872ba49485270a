"""An open file of an object store, whose bytes are fetched in blocks, ahead of whoever reads it.

One function fetches them, FetchBlock: a range of an object, or chunks of a tiered segment that are decoded in the
threads that fetch. Small reads at any place get a piece around them, which is kept for the reads that follow: headers,
proofs of index entries, the end of a log. What `expect` announces is fetched in large blocks, several at once.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from kafkalog_spark.store.interface import Buffer, FetchBlock

# Threads that fetch ahead, and how much they may hold: shared by all files of a process.
#
# A process that was forked begins with threads and a budget of its own.

T = TypeVar("T")

WORKER_BYTES = 256 << 20
"""Bytes fetched ahead, or being fetched, of all files of a process: a worker may take 300 MB, and decodes too."""
FILE_BYTES = 32 << 20  # such bytes of one file: the block that is read, the one before it, and two ahead
THREADS = 16  # four files of a task with four requests each: a request waits for the network, not for a core


class ReadAhead:
    """The threads of a process, and how many bytes they may hold. left: how many more; below 0 where somebody waits."""

    def __init__(self, size: int = WORKER_BYTES) -> None:
        self.left = size
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="kafkalog-fetch")

    def take(self, size: int, *, must: bool = False) -> bool:
        """Take `size` bytes; False when there are not as many. must: what somebody waits for is taken in any case."""
        with self._lock:
            if self.left < size and not must:
                return False
            self.left -= size
            return True

    def give_back(self, size: int) -> None:
        with self._lock:
            self.left += size

    def submit(self, work: Callable[[], T]) -> Future[T]:
        return self._threads.submit(work)


_of_process = ReadAhead()  # its threads begin with the first block that is fetched


def read_ahead() -> ReadAhead:
    """The one of this process."""
    return _of_process


def _forget() -> None:
    """In a fork: threads are not inherited, and a lock may have been held by one of them."""
    global _of_process
    _of_process = ReadAhead()


os.register_at_fork(after_in_child=_forget)


PIECE = 128 << 10
"""Bytes fetched for a small read. On S3 the first byte takes as long as the next megabyte, so more would cost nothing
there; but many of these reads need 61 bytes, and over a slow line or in a worker's memory it does cost."""
NEAR = 1 << 20
"""A read that begins at most so far after the last piece goes on from it: the gap is as fast as another request."""
BLOCK = 8 << 20  # bytes of a block fetched ahead
FIRST_BLOCK = 2 << 20  # bytes of the first one: its rows should be seen soon. The next ones double.
IN_FLIGHT = 2  # blocks fetched ahead of the one that is read
KEPT = 8 << 20  # bytes of pieces kept


class _Fetched:
    """Bytes [begin, end) that were fetched, or are being fetched."""

    __slots__ = ("_bytes", "_future", "begin", "end")

    def __init__(self, begin: int, end: int, source: Future[Buffer] | Buffer) -> None:
        self.begin, self.end = begin, end
        self._future = source if isinstance(source, Future) else None
        self._bytes = None if isinstance(source, Future) else memoryview(source)

    def bytes(self) -> memoryview:
        """Waits for them. Raises OSError, each time."""
        if self._bytes is None:
            assert self._future is not None
            self._bytes = memoryview(self._future.result())
        return self._bytes

    def holds(self, position: int) -> bool:
        return self.begin <= position < self.end

    def forget(self, shared: ReadAhead) -> None:
        """Cancel what has not begun; what has is given up when it arrives."""
        if self._future is not None:
            size = self.end - self.begin
            self._future.cancel()
            self._future.add_done_callback(lambda _: shared.give_back(size))


class ObjectFile:
    """An open file of `size` bytes: see OpenFile; `has_changed` is a request. align: blocks begin at multiples of it,
    and end there or at the end of the file (the chunk size of a tiered segment, bytes). block: bytes of a block fetched
    ahead. changed: whether the file is another one by now. closed: called by `close`."""

    def __init__(
        self,
        size: int,
        fetch: FetchBlock,
        *,
        changed: Callable[[], bool],
        closed: Callable[[], None] = lambda: None,
        align: int = 1,
        block: int = BLOCK,
    ) -> None:
        self.size = size
        self._fetch = fetch
        self.has_changed = changed
        self._closed = closed
        self._align = align
        self._block = block
        self._pieces: list[_Fetched] = []  # the one used last comes last
        self._run = PIECE  # bytes of the next piece, if it goes on from the last one
        self._last_end = -1
        self._blocks: deque[_Fetched] = deque()  # without a hole between them
        self._next = self._until = 0  # what is announced and not asked for yet
        self._next_size = FIRST_BLOCK
        self._ahead = 1
        self._is_closed = False
        self._shared = read_ahead()

    def read(self, position: int, size: int) -> bytes:
        end = min(position + size, self.size)
        if position >= end:
            return b""
        piece = self._piece_at(position, end)
        if piece.end >= end:
            return bytes(piece.bytes()[position - piece.begin : end - piece.begin])
        target = bytearray(end - position)
        self.read_into(position, memoryview(target))
        return bytes(target)

    def read_into(self, position: int, target: memoryview) -> int:
        end = min(position + len(target), self.size)
        if end - position > BLOCK and not self._blocks and self._next >= self._until:
            self.expect(position, end)
        at = position
        while at < end:
            piece = self._piece_at(at, end)
            until = min(end, piece.end)
            target[at - position : until - position] = piece.bytes()[at - piece.begin : until - piece.begin]
            at = until
        return max(end - position, 0)

    def expect(self, position: int, until: int) -> None:
        """[position, until) is going to be read from its beginning on: fetch ahead, and nothing from `until` on."""
        until = min(until, self.size)
        if self._blocks and self._blocks[0].begin <= position <= self._next:
            self._until = max(until, self._until)
        else:
            self._forget_blocks()
            while ends := [piece.end for piece in self._pieces if piece.holds(position)]:
                position = max(ends)
            self._next, self._until = self._down(position), until
            self._next_size, self._ahead = FIRST_BLOCK, 1
        self._fetch_ahead()

    def close(self) -> None:
        """Give up what is being fetched, and forget what was."""
        self._is_closed = True
        self._closed()
        self._forget_blocks()
        self._pieces.clear()

    def __del__(self) -> None:
        # whoever forgot to close it: the budget is everybody's
        self._forget_blocks()

    def _piece_at(self, position: int, end: int) -> _Fetched:
        """A piece that holds the byte at `position`; `end` is how far the reader wants to go."""
        if self._is_closed:
            raise ValueError("read of a closed file")
        if self._blocks and self._blocks[0].begin <= position < self._next:
            return self._block_at(position)
        for slot in range(len(self._pieces) - 1, -1, -1):
            if self._pieces[slot].holds(position):
                piece = self._pieces.pop(slot)
                self._pieces.append(piece)
                return piece
        if self._next <= position < min(self._until, self._next + BLOCK):
            while self._next <= position:
                self._next_block(must=True)
            return self._block_at(position)
        if position < self._until and self._next < position and end - position > PIECE:
            self.expect(position, self._until)  # it has jumped ahead
            if self._blocks:
                return self._block_at(position)
        return self._small_piece(position, end)

    # What was announced.

    def _block_at(self, position: int) -> _Fetched:
        """The block that holds the byte at `position`; of those before it, one is kept for a reader that looks back."""
        number = next(number for number, block in enumerate(self._blocks) if block.holds(position))
        for _ in range(number - 1):
            self._blocks.popleft().forget(self._shared)
            self._ahead = min(self._ahead + 1, IN_FLIGHT)
            number -= 1
        self._fetch_ahead(number)
        return self._blocks[number]

    def _fetch_ahead(self, reading: int = 0) -> None:
        while self._next < self._until and len(self._blocks) - reading <= self._ahead and self._next_block():
            pass

    def _next_block(self, *, must: bool = False) -> bool:
        """Ask for the next block; False when there is no room for it."""
        begin = self._next
        end = self._up(min(begin + self._next_size, self._until))
        if self._until - end < self._next_size // 2:
            end = self._up(self._until)  # no request for a small rest
        held = sum(block.end - block.begin for block in self._blocks)
        if not must and held + end - begin > FILE_BYTES:
            return False
        if not self._shared.take(end - begin, must=must or not self._blocks):
            return False
        self._blocks.append(_Fetched(begin, end, self._shared.submit(lambda: self._fetch(begin, end))))
        self._next = end
        self._next_size = min(self._next_size * 2, self._block)
        return True

    def _forget_blocks(self) -> None:
        for block in self._blocks:
            block.forget(self._shared)
        self._blocks.clear()
        self._next = self._until = 0

    # Everything else.

    def _small_piece(self, position: int, wanted: int) -> _Fetched:
        """Fetch a piece with the byte at `position`, by this thread."""
        near = self._last_end <= position <= self._last_end + NEAR and self._last_end >= 0
        self._run = min(self._run * 2, BLOCK) if near else PIECE
        end = min(max(min(wanted, position + BLOCK), position + self._run), self.size)
        begin = self._last_end if near and self._last_end + self._run > position else position
        if end == self.size:
            begin = min(begin, max(end - self._run, 0))  # who reads the end looks around there
        fetched = [*self._pieces, *self._blocks]
        end = min((piece.begin for piece in fetched if position < piece.begin < end), default=end)
        begin = max((piece.end for piece in fetched if begin < piece.end <= position), default=begin)
        begin, end = self._down(begin), self._up(end)
        piece = _Fetched(begin, end, self._fetch(begin, end))
        self._pieces.append(piece)
        while sum(piece.end - piece.begin for piece in self._pieces[:-1]) > KEPT:
            del self._pieces[0]
        self._last_end = end
        return piece

    def _down(self, position: int) -> int:
        return position - position % self._align

    def _up(self, position: int) -> int:
        return min(position + -position % self._align, self.size)
