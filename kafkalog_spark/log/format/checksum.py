"""CRC-32C (Castagnoli), by the processor's own instruction: of record batches v2 and of producer snapshots."""

from __future__ import annotations


def crc32c(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """The CRC with `data` after the bytes that gave `crc`; 0 to begin with.

    The library is imported by the first call: importing it takes 40 ms, and a stream that is planned may never need it.
    """
    from crc32c import crc32c as found

    return int(found(data, crc))
