"""Bounded output of a decompression.

No framing states the decompressed size reliably, so every codec writes step by step and stops at a limit: a batch of a
few kilobytes can otherwise decompress to gigabytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, repeat

from kafkalog_spark.errors import DecompressesTooFar
from kafkalog_spark.log.codecs.scratch import Scratch

MAX_PIECES = 64 << 10
"""Largest number of blocks in the stream of one batch. Without a limit, a small batch of empty blocks would take much
time to decompress. Clients fill blocks of 64 KB (lz4) or 32 KB (snappy; 1 KB at least)."""

_FIRST_STEPS = 64 << 10, 128 << 10, 256 << 10, 512 << 10
_LARGEST_STEP = 1 << 20  # zlib allocates up to three times as much while it joins the parts of a step
_CHECK_FROM = 1 << 20  # decompressed bytes of a batch from which on `check` is called


def step_sizes() -> Iterator[int]:
    """Yield the number of bytes to decompress in each step: 64 KB, growing to 1 MB."""
    return chain(_FIRST_STEPS, repeat(_LARGEST_STEP))


class Output:
    """Decompressed bytes in `scratch`, from `start` to `at`.

    Args:
        scratch: Buffer to write to.
        start: Position of the first byte.
        limit: Largest number of bytes.
        check: Called as check(start, end) repeatedly during a large decompression. It raises if the bytes so far
            already contain all records that the batch announced.
        pieces: Largest number of blocks or members of the stream.
    """

    def __init__(
        self,
        scratch: Scratch,
        start: int,
        limit: int,
        check: Callable[[int, int], None] | None = None,
        pieces: int = MAX_PIECES,
    ) -> None:
        self.scratch = scratch
        self.start = start
        self.at = start
        self.limit = limit
        self._check = check
        self._check_at = _CHECK_FROM
        self._pieces = self._pieces_left = pieces

    @property
    def left(self) -> int:
        return self.limit - (self.at - self.start)

    def require_room(self, size: int) -> None:
        """Raise DecompressesTooFar unless `size` more bytes are within the limit."""
        if size > self.left:
            raise DecompressesTooFar(
                f"its records decompress to more than {self.limit} bytes",
                hint="allow more if such batches are meant to be there",
            )

    def next_piece(self) -> None:
        """Count a block or member. Raise DecompressesTooFar if there are too many."""
        self._pieces_left -= 1
        if self._pieces_left < 0:
            raise DecompressesTooFar(f"its compressed stream consists of more than {self._pieces} pieces")

    def room(self, size: int) -> memoryview:
        """Return a writable view of the next `size` bytes, or fewer at the limit."""
        return self.scratch.room(self.at, min(size, self.left))

    def count_written(self, size: int) -> None:
        """Count `size` bytes that were written into `room`."""
        self.at += size
        if self._check is not None and self.at - self.start >= self._check_at:
            self._check_at = 2 * (self.at - self.start)
            self._check(self.start, self.at)

    def put(self, data: bytes) -> None:
        """Append bytes that a library returned as an object."""
        self.require_room(len(data))
        if data:
            self.room(len(data))[:] = data
            self.count_written(len(data))
