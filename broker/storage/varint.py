"""Lengths as records carry them."""

from __future__ import annotations

from broker.protocol.wire import uvarint


def varint(value: int) -> bytes:
    """A zigzag varint of a value >= -1."""
    return uvarint(1 if value < 0 else 2 * value)
