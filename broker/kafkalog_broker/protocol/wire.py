"""What the flexible versions of the protocol (KIP-482) are made of: varints and tagged fields."""

from __future__ import annotations

from kafkalog_broker.errors import MalformedRequest

MAX_VARINT_BYTES = 5  # 32 bits, 7 a byte


def read_uvarint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """An unsigned varint: (value, position after it). MalformedRequest where it is cut short or above 32 bits."""
    try:
        byte = data[position]
        if byte < 0x80:
            return byte, position + 1
        value = byte & 0x7F
        shift = 7
        for at in range(position + 1, position + MAX_VARINT_BYTES):
            byte = data[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> 32:
                    break
                return value, at + 1
            shift += 7
    except IndexError:
        raise MalformedRequest(f"the request ends inside a varint at byte {position} of {len(data)}") from None
    raise MalformedRequest(f"the varint at byte {position} has more than 32 bits")


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint."""
    if value < 0x80:
        return _SHORT[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_tagged_fields(data: bytes | memoryview, position: int) -> int:
    """The position after the tagged fields that begin at `position`."""
    if position < len(data) and data[position] == 0:  # no tags: nearly always
        return position + 1
    count, position = read_uvarint(data, position)
    for _ in range(count):
        _, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        position += size
        if position > len(data):
            raise MalformedRequest(f"a tagged field of {size} bytes ends past the request of {len(data)} bytes")
    return position


def compact_string(value: str | None) -> bytes:
    """Length plus one as a varint, then UTF-8; null is a single zero."""
    if value is None:
        return b"\0"
    encoded = value.encode()
    return uvarint(len(encoded) + 1) + encoded


def legacy_string(value: str | None) -> bytes:
    """Length as i16, then UTF-8; null is -1. ValueError above 32,767 bytes."""
    if value is None:
        return b"\xff\xff"
    encoded = value.encode()
    if len(encoded) > 0x7FFF:
        raise ValueError(f"a string of {len(encoded)} bytes has no i16 length, 32767 is the most")
    return len(encoded).to_bytes(2, "big") + encoded


def legacy_count(count: int) -> bytes:
    """The length of an array, as i32."""
    return count.to_bytes(4, "big")


_SHORT = [bytes((value,)) for value in range(0x80)]
