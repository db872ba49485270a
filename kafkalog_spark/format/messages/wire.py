"""Reads parts of a message without its definition: lengths, compact strings and tagged fields (KIP-482)."""

from __future__ import annotations

from kafkalog_spark.format.varints import read_uvarint, uvarint

NULL_STRUCT, NULL_TAGGED_STRUCT = 255, 0
"""The byte before a nullable struct if it is null (1 otherwise): -1 for a field, and 0 for a tagged field (KIP-893)."""


class Malformed(ValueError):
    """The bytes are not the expected message. `position` is that of the first wrong or missing byte."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


def read_unsigned_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return an unsigned varint of at most 32 bits, and the position after it.

    Raises:
        Malformed: If the varint is longer, or the bytes end early.
    """
    try:
        return read_uvarint(data, at)
    except IndexError:
        raise ends_early(len(data)) from None
    except ValueError as error:
        raise Malformed(str(error), at) from None


def compact_string(text: str) -> bytes:
    """Return a compact string: its length plus 1 as an unsigned varint, then UTF-8."""
    data = text.encode()
    return uvarint(len(data) + 1) + data


def read_compact_string(data: bytes, at: int) -> tuple[str, int]:
    """Return a compact string that is not null, and the position after it.

    Raises:
        Malformed: If the bytes are not such a string.
    """
    size, begin = read_unsigned_varint(data, at)
    end = begin + size - 1
    if not size:
        raise Malformed("a string is null", at)
    if end > len(data):
        raise Malformed(f"a string of {size - 1} bytes, but only {len(data) - begin} bytes are left", begin)
    try:
        return data[begin:end].decode(), end
    except UnicodeDecodeError as error:
        raise Malformed(f"a string is not UTF-8: {error}", begin) from None


def read_tagged_fields(data: bytes, at: int) -> tuple[dict[int, bytes], int]:
    """Return the content of the tagged fields at position `at` by tag, and the position after them.

    Raises:
        Malformed: If tags are not in ascending order, or the bytes end early.
    """
    fields: dict[int, bytes] = {}
    last = -1
    count, at = read_unsigned_varint(data, at)
    for _ in range(count):
        begin = at
        tag, at = read_unsigned_varint(data, at)
        if tag <= last:
            raise tags_not_increasing(tag, last, begin)
        size, at = read_unsigned_varint(data, at)
        if size > len(data) - at:
            raise tag_too_long(tag, size, data, at)
        fields[tag] = data[at : at + size]
        last, at = tag, at + size
    return fields, at


def ends_early(position: int) -> Malformed:
    return Malformed("it ends early", position)


def tags_not_increasing(tag: int, last: int, position: int) -> Malformed:
    return Malformed(f"tag {tag} follows tag {last}", position)


def tag_too_long(tag: int, size: int, data: bytes | memoryview, position: int) -> Malformed:
    return Malformed(f"tagged field {tag} of {size} bytes, but only {len(data) - position} bytes are left", position)
