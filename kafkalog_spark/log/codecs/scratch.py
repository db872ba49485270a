"""Growing buffer that batches are decompressed into."""

from __future__ import annotations

import mmap

import numpy as np

_RESERVED_FROM = 8 << 20
"""Capacity in bytes from which on the largest expected size is reserved as an address range. Pages that are never
written use no memory, and the buffer grows without a copy, which would double the memory in use."""
_MAX_RESERVED = 256 << 20
"""Largest address range in bytes that is reserved."""


class Scratch:
    """uint8 buffer that grows on demand; not thread-safe.

    Views that were returned before the buffer grew refer to the old memory.

    Args:
        capacity: Initial size in bytes.
        most: Expected largest size in bytes; 0 if unknown.
    """

    def __init__(self, capacity: int = 1 << 20, expected_size: int = 0) -> None:
        self.expect(expected_size)
        self._hold(np.empty(capacity, np.uint8))

    @classmethod
    def of(cls, data: memoryview) -> Scratch:
        """Return a Scratch over `data`, without a copy."""
        scratch = cls(0)
        scratch._hold(np.frombuffer(data, np.uint8))
        return scratch

    def expect(self, expected_size: int) -> None:
        """Set the expected largest size in bytes."""
        self._most = min(expected_size, _MAX_RESERVED)

    def _hold(self, data: np.ndarray) -> None:
        self.data = data
        self.view = data.data

    def room(self, at: int, size: int) -> memoryview:
        """Return a writable view of [at:at + size]. Growing keeps the bytes before `at`."""
        if at + size > self.data.size:
            larger = max(at + size, 2 * self.data.size)
            data = _reserved(max(larger, self._most)) if larger >= _RESERVED_FROM else np.empty(larger, np.uint8)
            data[:at] = self.data[:at]
            self._hold(data)
        return self.view[at : at + size]

    def read_only(self) -> np.ndarray:
        """Return the buffer as a read-only array for kernels. It refers to the old memory after the buffer grows."""
        array = self.data.view()
        array.flags.writeable = False
        return array

    def shrink(self, capacity: int) -> None:
        """Free the memory above `capacity` after an unusually large batch."""
        if self.data.size > capacity:
            self._hold(np.empty(capacity, np.uint8))


def _reserved(size: int) -> np.ndarray:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    return np.frombuffer(mmap.mmap(-1, size, flags=flags), np.uint8)
