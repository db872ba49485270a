"""Counts of requests to object stores."""

from __future__ import annotations

from typing import NamedTuple


class RequestCounts(NamedTuple):
    """Numbers of requests by kind, and bytes of their bodies, which object stores charge for.

    Each try counts, except the library's own retries of pages of a listing and of parts of an upload. The difference of
    two values counts the requests in between.
    """

    list: int = 0
    get: int = 0
    head: int = 0
    put: int = 0
    delete: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    def __sub__(self, other: RequestCounts) -> RequestCounts:
        return RequestCounts(*(mine - its for mine, its in zip(self, other, strict=True)))

    def plus(self, other: RequestCounts) -> RequestCounts:
        """Return the sum. (`+` concatenates tuples.)"""
        return RequestCounts(*(mine + its for mine, its in zip(self, other, strict=True)))

    def __str__(self) -> str:
        kinds = [f"{count} {kind.upper()}" for kind, count in zip(self._fields[:5], self[:5], strict=True) if count]
        return f"{', '.join(kinds) or 'no requests'}; {self.bytes_read} bytes read, {self.bytes_written} written"
