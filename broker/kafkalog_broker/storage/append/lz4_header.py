"""The checksum in the header of an lz4 frame, which the codec's library does not show, and Kafka looks at.

    4 magic number | descriptor: 1 flags, 1 block size, 8 content size when the flags say so | 1 checksum

The checksum is the second byte of the descriptor's xxHash32. In message sets v0 it is taken over the magic number too,
and nobody looks at it (KAFKA-3160).
"""

from __future__ import annotations

from kafkalog_spark.errors import CorruptBatch

_DESCRIPTOR_AT = 4
_HAS_CONTENT_SIZE = 0x08
_CONTENT_SIZE_BYTES = 8
_SHORTEST = 2

# xxHash32 with seed 0, of less than 16 bytes
_P1, _P2, _P3, _P4, _P5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
_U32 = 0xFFFFFFFF


def check_lz4_header(frame: bytes | memoryview) -> None:
    """Raise CorruptBatch for a checksum that is not the descriptor's. A frame that ends before it is left to whoever
    decompresses it."""
    if len(frame) <= _DESCRIPTOR_AT:
        return
    size = _SHORTEST + (_CONTENT_SIZE_BYTES if frame[_DESCRIPTOR_AT] & _HAS_CONTENT_SIZE else 0)
    checksum_at = _DESCRIPTOR_AT + size
    if len(frame) <= checksum_at:
        return
    expected = checksum(bytes(frame[_DESCRIPTOR_AT:checksum_at]))
    if frame[checksum_at] != expected:
        raise CorruptBatch(
            f"its lz4 frame has the header checksum {frame[checksum_at]:#04x}, its header has {expected:#04x}"
        )


def checksum(data: bytes) -> int:
    """The byte that comes after this descriptor, of less than 16 bytes."""
    return _xxh32(data) >> 8 & 0xFF


def _xxh32(data: bytes) -> int:
    found = _P5 + len(data)
    words = len(data) - len(data) % 4
    for at in range(0, words, 4):
        found = _P4 * _turned(found + _P3 * int.from_bytes(data[at : at + 4], "little"), 17)
    for byte in data[words:]:
        found = _P1 * _turned(found + _P5 * byte, 11)
    found &= _U32
    for shift, factor in ((15, _P2), (13, _P3)):
        found = (found ^ found >> shift) * factor & _U32
    return found ^ found >> 16


def _turned(value: int, bits: int) -> int:
    value &= _U32
    return (value << bits | value >> (32 - bits)) & _U32
