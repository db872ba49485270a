"""Header checksum of an lz4 frame. Kafka verifies it; the lz4 library does not expose it.

    4 magic number | descriptor: 1 flags, 1 block size, 8 content size if the flags say so | 1 checksum

The checksum is the second byte of the descriptor's xxHash32 with seed 0. In message sets of format v0 it also covers
the magic number; newer clients do not verify that one (KAFKA-3160).
"""

from __future__ import annotations

from kafkalog_spark.errors import CorruptBatch

_DESCRIPTOR_AT = 4
_HAS_CONTENT_SIZE = 0x08
_CONTENT_SIZE_BYTES = 8
_SHORTEST_DESCRIPTOR = 2
_P1, _P2, _P3, _P4, _P5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
"""Primes of xxHash32."""


def check_header(frame: bytes | memoryview) -> None:
    """Raise CorruptBatch if the header checksum is wrong. A frame that ends before its checksum passes."""
    if len(frame) <= _DESCRIPTOR_AT:
        return
    has_content_size = frame[_DESCRIPTOR_AT] & _HAS_CONTENT_SIZE
    checksum_at = _DESCRIPTOR_AT + _SHORTEST_DESCRIPTOR + (_CONTENT_SIZE_BYTES if has_content_size else 0)
    if len(frame) <= checksum_at:
        return
    expected = header_checksum(bytes(frame[_DESCRIPTOR_AT:checksum_at]))
    if frame[checksum_at] != expected:
        raise CorruptBatch(f"the lz4 frame has the header checksum {frame[checksum_at]:#04x}, expected {expected:#04x}")


def header_checksum(descriptor: bytes) -> int:
    """Return the checksum byte of a descriptor of less than 16 bytes."""
    digest = _P5 + len(descriptor)
    words_end = len(descriptor) - len(descriptor) % 4
    for at in range(0, words_end, 4):
        digest = _P4 * _rotate_left(digest + _P3 * int.from_bytes(descriptor[at : at + 4], "little"), 17)
    for byte in descriptor[words_end:]:
        digest = _P1 * _rotate_left(digest + _P5 * byte, 11)
    digest &= 0xFFFFFFFF
    for shift, factor in ((15, _P2), (13, _P3)):
        digest = (digest ^ digest >> shift) * factor & 0xFFFFFFFF
    return (digest ^ digest >> 16) >> 8 & 0xFF


def _rotate_left(value: int, bits: int) -> int:
    value &= 0xFFFFFFFF
    return value << bits | value >> (32 - bits)
