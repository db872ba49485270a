"""How many requests a store was asked for, and how many bytes came and went: what object stores charge for."""

from __future__ import annotations

import threading
from typing import NamedTuple


class RequestCounts(NamedTuple):
    """Requests by kind, and bytes of bodies. Taking one from another gives what happened between the two.

    Each try counts, but those that the library makes by itself: it repeats pages of a listing and parts of an upload.
    """

    list: int = 0
    get: int = 0
    head: int = 0
    put: int = 0
    delete: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    @property
    def requests(self) -> int:
        """Of all kinds."""
        return self.list + self.get + self.head + self.put + self.delete

    def __sub__(self, other: RequestCounts) -> RequestCounts:
        return RequestCounts(*(mine - its for mine, its in zip(self, other, strict=True)))

    def plus(self, other: RequestCounts) -> RequestCounts:
        """Both together. (`+` joins tuples.)"""
        return RequestCounts(*(mine + its for mine, its in zip(self, other, strict=True)))

    def __str__(self) -> str:
        kinds = [f"{count} {kind.upper()}" for kind, count in zip(self._fields[:5], self[:5], strict=True) if count]
        return f"{', '.join(kinds) or 'no requests'}; {self.bytes_read} bytes read, {self.bytes_written} written"


class RequestTally:
    """Counts that threads add to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = RequestCounts()

    def add(self, *, list: int = 0, get: int = 0, head: int = 0, put: int = 0, delete: int = 0, bytes_read: int = 0,
            bytes_written: int = 0) -> None:  # fmt: skip
        more = RequestCounts(list, get, head, put, delete, bytes_read, bytes_written)
        with self._lock:
            self._counts = self._counts.plus(more)

    def counts(self) -> RequestCounts:
        """What was counted until now."""
        with self._lock:
            return self._counts
