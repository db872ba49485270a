"""Lengths as records carry them."""

from __future__ import annotations


def varint(value: int) -> bytes:
    """A zigzag varint of a value >= -1."""
    value = 1 if value < 0 else 2 * value
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
