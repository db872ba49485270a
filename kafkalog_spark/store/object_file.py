"""Open file of an object store, whose bytes are fetched in blocks ahead of the reader.

A FetchBlock fetches a range of an object, or chunks of a tiered segment, which it decodes in the fetching thread. A
small read, such as that of a batch header, fetches a piece around its position, which is kept for later reads. A range
that `expect` announces is fetched in large blocks, several at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from kafkalog_spark.store.interface import Buffer, FetchBlock
from kafkalog_spark.store.read_ahead import ReadAhead, read_ahead

PIECE = 128 << 10
"""Bytes fetched for a small read. On S3 the first byte takes as long as the next megabyte, so a larger piece would be
as fast. But many reads need only a batch header, and slow connections and the worker's memory favour small pieces."""
NEAR_BYTES = 1 << 20
"""A read that begins at most this many bytes after the last piece also fetches the gap, instead of a second request."""
MAX_FILE_BYTES = 32 << 20  # bytes held of one file: the block being read, the one before it, and two ahead
BLOCK = 8 << 20  # bytes of a block fetched ahead
FIRST_BLOCK = 2 << 20  # bytes of the first one, small for early rows; the next ones double
MAX_BLOCKS_AHEAD = 2  # blocks fetched ahead of the one that is read
MAX_PIECES_BYTES = 8 << 20  # bytes of pieces kept


class _Fetched:
    """Bytes [begin, end) that were fetched, or are being fetched."""

    __slots__ = ("_bytes", "_future", "begin", "end")

    def __init__(self, begin: int, end: int, source: Future[Buffer] | Buffer) -> None:
        self.begin, self.end = begin, end
        self._future = source if isinstance(source, Future) else None
        self._bytes = None if isinstance(source, Future) else memoryview(source)

    def bytes(self) -> memoryview:
        """Wait for the bytes and return them. If the fetch failed, every call raises its OSError."""
        if self._bytes is None:
            assert self._future is not None
            self._bytes = memoryview(self._future.result())
        return self._bytes

    def holds(self, position: int) -> bool:
        return self.begin <= position < self.end

    def forget(self, shared: ReadAhead) -> None:
        """Cancel the fetch; if it has begun, drop its bytes when they arrive."""
        if self._future is not None:
            size = self.end - self.begin
            self._future.cancel()
            self._future.add_done_callback(lambda _: shared.release(size))


class ObjectFile:
    """An open file: see OpenFile. `has_changed` sends a request.

    Args:
        size: Size of the file in bytes.
        fetch: Fetches a range of the file.
        changed: Returns True if the file has been replaced.
        closed: Called by `close`.
        align: Alignment of blocks in bytes, for a tiered segment its chunk size. A block ends at a multiple of it or at
            the end of the file.
        block: Size in bytes of the largest block that is fetched ahead.
    """

    def __init__(
        self,
        size: int,
        fetch: FetchBlock,
        *,
        has_changed: Callable[[], bool],
        on_close: Callable[[], None] = lambda: None,
        align: int = 1,
        block: int = BLOCK,
    ) -> None:
        self.size = size
        self._fetch = fetch
        self.has_changed = has_changed
        self._closed = on_close
        self._align = align
        self._block = block
        self._pieces: list[_Fetched] = []  # the most recently used one is last
        self._piece_size = PIECE  # bytes of the next piece, if it follows the last one
        self._last_end = -1
        self._blocks: deque[_Fetched] = deque()  # contiguous
        self._next = self._until = 0  # range that is announced and not requested yet
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
        begin = position
        while begin < end:
            piece = self._piece_at(begin, end)
            until = min(end, piece.end)
            target[begin - position : until - position] = piece.bytes()[begin - piece.begin : until - piece.begin]
            begin = until
        return max(end - position, 0)

    def expect(self, position: int, until: int) -> None:
        """Fetch [position, until) ahead for a sequential read that begins at `position`."""
        until = min(until, self.size)
        if self._blocks and self._blocks[0].begin <= position <= self._next:
            self._until = max(until, self._until)
        else:
            self._forget_blocks()
            while ends := [piece.end for piece in self._pieces if piece.holds(position)]:
                position = max(ends)
            self._next, self._until = self._align_down(position), until
            self._next_size, self._ahead = FIRST_BLOCK, 1
        self._fetch_ahead()

    def close(self) -> None:
        """Cancel running fetches and free the fetched bytes."""
        self._is_closed = True
        self._closed()
        self._forget_blocks()
        self._pieces.clear()

    def __del__(self) -> None:
        # Return the bytes to the shared budget, also if the file was not closed.
        self._forget_blocks()

    def _piece_at(self, position: int, end: int) -> _Fetched:
        """Return a piece or block with the byte at `position`. end: end of the read."""
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
                self._next_block(force=True)
            return self._block_at(position)
        if position < self._until and self._next < position and end - position > PIECE:
            self.expect(position, self._until)  # the reader has skipped a part
            if self._blocks:
                return self._block_at(position)
        return self._small_piece(position, end)

    def _block_at(self, position: int) -> _Fetched:
        """Return the block with the byte at `position`. One block before it is kept for reads that go back."""
        index = next(index for index, block in enumerate(self._blocks) if block.holds(position))
        for _ in range(index - 1):
            self._blocks.popleft().forget(self._shared)
            self._ahead = min(self._ahead + 1, MAX_BLOCKS_AHEAD)
            index -= 1
        self._fetch_ahead(index)
        return self._blocks[index]

    def _fetch_ahead(self, reading: int = 0) -> None:
        """Request blocks until there are enough ahead of the block with the index `reading`."""
        while self._next < self._until and len(self._blocks) - reading <= self._ahead and self._next_block():
            pass

    def _next_block(self, *, force: bool = False) -> bool:
        """Request the next block. Return False if a memory limit does not allow it. force: ignore the limits."""
        begin = self._next
        end = self._align_up(min(begin + self._next_size, self._until))
        if self._until - end < self._next_size // 2:
            end = self._align_up(self._until)  # avoids a request for a small remainder
        held = sum(block.end - block.begin for block in self._blocks)
        if not force and held + end - begin > MAX_FILE_BYTES:
            return False
        if not self._shared.reserve(end - begin, force=force or not self._blocks):
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

    def _small_piece(self, position: int, read_end: int) -> _Fetched:
        """Fetch a piece with the byte at `position`, in this thread. read_end: end of the read."""
        near = self._last_end <= position <= self._last_end + NEAR_BYTES and self._last_end >= 0
        self._piece_size = min(self._piece_size * 2, BLOCK) if near else PIECE
        end = min(max(min(read_end, position + BLOCK), position + self._piece_size), self.size)
        begin = self._last_end if near and self._last_end + self._piece_size > position else position
        if end == self.size:
            begin = min(begin, max(end - self._piece_size, 0))  # reads at the end usually follow each other
        fetched = [*self._pieces, *self._blocks]
        end = min((piece.begin for piece in fetched if position < piece.begin < end), default=end)
        begin = max((piece.end for piece in fetched if begin < piece.end <= position), default=begin)
        begin, end = self._align_down(begin), self._align_up(end)
        piece = _Fetched(begin, end, self._fetch(begin, end))
        self._pieces.append(piece)
        while sum(piece.end - piece.begin for piece in self._pieces[:-1]) > MAX_PIECES_BYTES:
            del self._pieces[0]
        self._last_end = end
        return piece

    def _align_down(self, position: int) -> int:
        return position - position % self._align

    def _align_up(self, position: int) -> int:
        return min(position + -position % self._align, self.size)
