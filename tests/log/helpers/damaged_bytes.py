"""Systematic damage for tests of small files: whatever is done to the bytes, a reader answers or raises our error."""

from __future__ import annotations

from collections.abc import Iterator


def damaged(data: bytes) -> Iterator[tuple[str, bytes]]:
    """(what was done, bytes): cut at every length, every byte inverted, zeroed and off by one bit, and bytes added."""
    for size in range(len(data)):
        yield f"cut to {size} bytes", data[:size]
    for at in range(len(data)):
        for mask in (0xFF, 0x01, 0x80, data[at]):
            if mask:
                yield f"byte {at} xor {mask:#x}", data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]
    for tail in (b"\x00", b"\xff", b"\n", b"\x00" * 64, b"\xff" * 64):
        yield f"followed by {len(tail)} x {tail[:1]!r}", data + tail
