"""A buffer that grows and is used again, for windows of files and for decompressed records."""

from __future__ import annotations

import mmap

import numpy as np

_RESERVED_FROM = 8 << 20
"""Bytes from which on the buffer is an address range of its own, as large as it may ever get: pages that nobody has
written to take no memory, and it need not be copied to grow, which for a moment takes twice the memory."""
_MOST_RESERVED = 256 << 20
"""Bytes. A limit that somebody set to many gigabytes is no reason to ask for such a range."""


class Scratch:
    """uint8 buffer of `capacity` bytes or more; views keep the memory from before it grew. most: expected at most."""

    def __init__(self, capacity: int = 1 << 20, most: int = 0) -> None:
        self.expect(most)
        self._hold(np.empty(capacity, np.uint8))

    @classmethod
    def of(cls, data: memoryview) -> Scratch:
        """A Scratch over `data`, without a copy."""
        made = cls(0)
        made._hold(np.frombuffer(data, np.uint8))
        return made

    def expect(self, most: int) -> None:
        """Bytes that it will hold at most from now on."""
        self._most = min(most, _MOST_RESERVED)

    def _hold(self, data: np.ndarray) -> None:
        self.data = data
        self.view = data.data

    def room(self, at: int, size: int) -> memoryview:
        """Writable view of [at:at + size]; grows, keeping what lies before `at`."""
        if at + size > self.data.size:
            larger = max(at + size, 2 * self.data.size)
            data = _reserved(max(larger, self._most)) if larger >= _RESERVED_FROM else np.empty(larger, np.uint8)
            data[:at] = self.data[:at]
            self._hold(data)
        return self.view[at : at + size]

    def read_only(self) -> np.ndarray:
        """The buffer as the kernels take it; call it again after the buffer may have grown."""
        array = self.data.view()
        array.flags.writeable = False
        return array

    def shrink(self, capacity: int) -> None:
        """Give memory back after a batch that was unusually large."""
        if self.data.size > capacity:
            self._hold(np.empty(capacity, np.uint8))


def _reserved(size: int) -> np.ndarray:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    return np.frombuffer(mmap.mmap(-1, size, flags=flags), np.uint8)
