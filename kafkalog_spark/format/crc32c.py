"""CRC-32C (Castagnoli) of v2 record batches and producer snapshots, computed by the processor's own instruction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_library: Callable[[Any, int], int] | None = None


def crc32c(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """The CRC with `data` after the bytes that gave `crc`; 0 to begin with. The library is imported by the first call,
    for 40 ms; an import statement in each call would cost as much as a batch of 8 kB does."""
    global _library
    if _library is None:
        import crc32c as library

        _library = library.crc32c
    return _library(data, crc)
