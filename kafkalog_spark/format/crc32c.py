"""CRC-32C (Castagnoli) of v2 record batches and producer snapshots, computed by the processor's own instruction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_library: Callable[[Any, int], int] | None = None


def crc32c(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """Continue `crc`, the CRC of the previous bytes (0 without any), with `data`.

    The first call imports the library, because its import is slow. An import statement in the function would slow down
    each call.
    """
    global _library
    if _library is None:
        import crc32c as library

        _library = library.crc32c
    return _library(data, crc)
