"""Varints: integers with seven bits per byte, the lowest first (Kafka: ByteUtils; the same as in Protobuf and Avro).

Records use zigzag varints, flexible messages (KIP-482) unsigned ones. Readers raise IndexError if a varint does not end
in time.
"""

from __future__ import annotations

UVARINT_BYTES, UVARLONG_BYTES = 5, 10  # largest number of bytes of 32-bit and 64-bit varints

_SHORT = [bytes((value,)) for value in range(0x80)]


def read_unsigned(data: memoryview | bytes, at: int, end: int) -> tuple[int, int]:
    """Return (value, position after it) of the unsigned varint in data[at:end], which may have any number of bits."""
    number = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
    raise IndexError


def read_uvarint(data: memoryview | bytes, at: int) -> tuple[int, int]:
    """Return (value, position after it) of a 32-bit unsigned varint. Raises ValueError if it has more bits or bytes."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    number = byte & 0x7F
    for index in range(1, UVARINT_BYTES):
        byte = data[at + index]
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if number >> 32:
                break
            return number, at + index + 1
    raise ValueError("an unsigned varint has more than 32 bits")


def uvarint(value: int) -> bytes:
    """Return `value`, which is not negative, as an unsigned varint."""
    if value < 0x80:
        return _SHORT[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: memoryview | bytes, at: int, end: int) -> tuple[int, int]:
    """Return (value, position after it) of the 32-bit zigzag varint in data[at:end]. Higher bits are dropped."""
    if at >= end:
        raise IndexError
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    number, at = read_unsigned(data, at, min(end, at + UVARINT_BYTES))
    number &= 0xFFFFFFFF
    return (number >> 1) ^ -(number & 1), at


def read_varlong(data: memoryview | bytes, at: int, end: int) -> tuple[int, int]:
    """Return (value, position after it) of the 64-bit zigzag varint in data[at:end]. Higher bits are dropped."""
    if at >= end:
        raise IndexError
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    number, at = read_unsigned(data, at, min(end, at + UVARLONG_BYTES))
    number &= 2**64 - 1
    return (number >> 1) ^ -(number & 1), at


def write_varint(out: bytearray, value: int) -> None:
    """Append `value`, an int64, as a zigzag varint to `out`."""
    number = (value << 1) ^ (value >> 63)
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
