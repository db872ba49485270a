"""CRC-32C (Castagnoli), by the processor's own instruction: of record batches v2 and of producer snapshots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_library: Callable[[Any, int], int] | None = None


def crc32c(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """The CRC with `data` after the bytes that gave `crc`; 0 to begin with.

    The library is imported by the first call: importing it takes 40 ms, and a stream that is planned may never need it.
    An import statement in each call would cost as much as a batch of 8 kB does.
    """
    return _library(data, crc) if _library is not None else _imported()(data, crc)


def _imported() -> Callable[[Any, int], int]:
    global _library
    import crc32c as library

    _library = library.crc32c
    return library.crc32c  # type: ignore[no-any-return]
