"""Compressed streams of many small pieces, as no client makes them and every codec allows."""

from __future__ import annotations

import struct

import lz4.block
import snappy


def lz4_linked_blocks(data: bytes, size: int, *, most: int = 7) -> bytes:
    """An lz4 frame of linked blocks of `size` bytes each, compressed one by one; most: code of the largest size."""
    out = bytearray(b"\x04\x22\x4d\x18" + bytes((0x40, most << 4, 0)))
    for at in range(0, len(data), size):
        block = lz4.block.compress(data[at : at + size], store_size=False)
        out += struct.pack("<I", len(block)) + block
    return bytes(out + bytes(4))


def xerial_blocks(data: bytes, size: int) -> bytes:
    """Snappy as Java frames it, in blocks of `size` bytes."""
    out = bytearray(b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1))
    for at in range(0, len(data), size):
        block = snappy.compress(data[at : at + size])
        out += struct.pack(">i", len(block)) + block
    return bytes(out)
