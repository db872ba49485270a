"""A byte buffer that grows and is used again: decompressed batches lie in it one behind the other."""

from __future__ import annotations

import numpy as np


class Scratch:
    """uint8 buffer of at least `capacity` bytes. Views handed out before it grew go on showing the old memory."""

    def __init__(self, capacity: int = 1 << 20) -> None:
        self.data = np.empty(capacity, np.uint8)
        self.view = self.data.data

    def room(self, at: int, size: int) -> memoryview:
        """Writable view of [at:at + size]; grows, keeping what lies before `at`."""
        if at + size > self.data.size:
            larger = np.empty(max(at + size, 2 * self.data.size), np.uint8)
            larger[:at] = self.data[:at]
            self.data, self.view = larger, larger.data
        return self.view[at : at + size]

    def put(self, at: int, data: bytes) -> int:
        """Copy `data` to [at:]; returns the position behind it."""
        self.room(at, len(data))[:] = data
        return at + len(data)

    def read_only(self) -> np.ndarray:
        """The buffer as the kernels take it; call it again after the buffer may have grown."""
        array = self.data.view()
        array.flags.writeable = False
        return array

    def shrink(self, capacity: int) -> None:
        """Give memory back after a batch that was unusually large."""
        if self.data.size > capacity:
            self.data = np.empty(capacity, np.uint8)
            self.view = self.data.data
