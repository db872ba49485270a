"""Requests to Produce, versions 0 to 13, read by hand: records stay where they are in the frame.

v0-2    acks i16 | timeout_ms i32 | [name string | [index i32 | message set bytes]]
v3-8    transactional_id nullable string | acks i16 | timeout_ms i32 | [name string | [index i32 | records bytes]]
v9-12   the same with compact strings, compact arrays and tagged fields after every struct
v13     topics by id (16 bytes) instead of name (KIP-516)
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from uuid import UUID

from kafkalog_broker.errors import MalformedRequest
from kafkalog_broker.protocol.frames import read_uvarint, skip_tagged_fields

_ACKS_TIMEOUT = struct.Struct(">hi")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_INDEX_SIZE = struct.Struct(">ii")
_LEGACY_HEAD = struct.Struct(">hhiih")  # transactional id's size, acks, timeout, topics, size of the name
_LEGACY_PARTITION = struct.Struct(">iii")  # partitions, index, size of the records
_FLEXIBLE_HEAD = struct.Struct(">BhiBB")  # the same; sizes and counts one higher
_FLEXIBLE_PARTITION = struct.Struct(">Bi")

MAX_PARTITIONS = 25_000
"""Topics and partitions of a request, as `codec.MAX_ELEMENTS` bounds those of others."""

FIRST_TRANSACTIONAL_VERSION = 3
FIRST_FLEXIBLE_VERSION = 9
FIRST_TOPIC_ID_VERSION = 13


@dataclass(slots=True)
class ProduceRequest:
    """`topics`: (name, or UUID from version 13 on; [(partition, records)]).

    `records` is a read-only memoryview into the frame, or None where the client sent null. A zero topic id is
    UUID(int=0).
    """

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[str | UUID, list[tuple[int, memoryview | None]]]]


def parse_produce_request(frame: bytes | memoryview, position: int, version: int) -> ProduceRequest:
    """Read the body that begins at `position`. MalformedRequest for lengths that do not fit and forbidden nulls."""
    try:
        return _of_one_batch(frame, position, version) or _parse(frame, position, version)
    except _DAMAGE as error:
        raise _malformed(frame, error) from None


def parse_one_batch(frame: bytes | memoryview, position: int, version: int) -> ProduceRequest | None:
    """As `parse_produce_request`, of a request with one batch and no transactional id; None for all others."""
    try:
        return _of_one_batch(frame, position, version)
    except _DAMAGE as error:
        raise _malformed(frame, error) from None


_DAMAGE = (struct.error, UnicodeDecodeError)


def _malformed(frame: bytes | memoryview, error: Exception) -> MalformedRequest:
    if isinstance(error, UnicodeDecodeError):
        return MalformedRequest(f"a string is not UTF-8: {error}")
    return MalformedRequest(f"the request ends early, after {len(frame)} bytes")


def _of_one_batch(frame: bytes | memoryview, position: int, version: int) -> ProduceRequest | None:
    """A request with one batch and no transactional id, read in half the time; None for all others, and for `_parse` to
    say what is wrong."""
    end = len(frame)
    if FIRST_FLEXIBLE_VERSION <= version < FIRST_TOPIC_ID_VERSION:
        name_at = position + _FLEXIBLE_HEAD.size
        if end < name_at:
            return None
        no_id, acks, timeout_ms, topics, size = _FLEXIBLE_HEAD.unpack_from(frame, position)
        name_end = name_at + size - 1
        if no_id or topics != 2 or not 0 < size < 0x80 or end < name_end + _FLEXIBLE_PARTITION.size:
            return None
        partitions, index = _FLEXIBLE_PARTITION.unpack_from(frame, name_end)
        size, start = read_uvarint(frame, name_end + _FLEXIBLE_PARTITION.size)
        stop = start + size - 1
        if partitions != 2 or not size or frame[stop:] != b"\0\0\0":  # no tags of partition, topic and request
            return None
    elif FIRST_TRANSACTIONAL_VERSION <= version < FIRST_FLEXIBLE_VERSION:
        name_at = position + _LEGACY_HEAD.size
        if end < name_at:
            return None
        no_id, acks, timeout_ms, topics, size = _LEGACY_HEAD.unpack_from(frame, position)
        name_end = name_at + size
        start = name_end + _LEGACY_PARTITION.size
        if no_id != -1 or topics != 1 or size < 0 or end < start:
            return None
        partitions, index, size = _LEGACY_PARTITION.unpack_from(frame, name_end)
        stop = start + size
        if partitions != 1 or size < 0 or stop != end:
            return None
    else:
        return None
    records = memoryview(frame)[start:stop].toreadonly()
    return ProduceRequest(None, acks, timeout_ms, [(str(frame[name_at:name_end], "utf-8"), [(index, records)])])


def _parse(frame: bytes | memoryview, position: int, version: int) -> ProduceRequest:
    view = memoryview(frame).toreadonly()
    flexible, by_id = version >= FIRST_FLEXIBLE_VERSION, version >= FIRST_TOPIC_ID_VERSION
    read_string, read_count = (_compact_string, _compact_count) if flexible else (_string, _count)
    transactional_id: str | None = None
    if version >= FIRST_TRANSACTIONAL_VERSION:
        transactional_id, position = read_string(view, position)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(view, position)
    topic_count, position = read_count(view, position + _ACKS_TIMEOUT.size)
    end, total = len(view), 0
    if topic_count > MAX_PARTITIONS:
        raise _too_many()
    topics: list[tuple[str | UUID, list[tuple[int, memoryview | None]]]] = []
    for _ in range(topic_count):
        topic: str | UUID | None
        if by_id:
            raw = bytes(view[position : position + 16])
            if len(raw) != 16:
                raise MalformedRequest(f"the request ends inside a topic id, after {end} bytes")
            topic = UUID(bytes=raw)
            position += 16
        else:
            topic, position = read_string(view, position)
            if topic is None:
                raise MalformedRequest("a topic name is null")
        partition_count, position = read_count(view, position)
        if total + partition_count > MAX_PARTITIONS:
            raise _too_many()
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(partition_count):
            if flexible:
                (index,) = _I32.unpack_from(view, position)
                size, start = read_uvarint(view, position + 4)
                size -= 1
            else:
                index, size = _INDEX_SIZE.unpack_from(view, position)
                start = position + _INDEX_SIZE.size
            position, records = start, None
            if size >= 0:
                position += size
                if position > end:
                    raise MalformedRequest(f"partition {index} has {size} bytes of records, {end - start} are left")
                records = view[start:position]
            elif size != -1:
                raise MalformedRequest(f"partition {index} has {size} bytes of records")
            if flexible:
                position = skip_tagged_fields(view, position)
            partitions.append((index, records))
        if flexible:
            position = skip_tagged_fields(view, position)
        topics.append((topic, partitions))
        total += partition_count + 1
    if flexible:
        skip_tagged_fields(view, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _too_many() -> MalformedRequest:
    return MalformedRequest(f"more than {MAX_PARTITIONS} topics and partitions: send several smaller requests")


def _compact_string(view: memoryview, position: int) -> tuple[str | None, int]:
    size, position = read_uvarint(view, position)
    if size == 0:
        return None, position
    end = position + size - 1
    if end > len(view):
        raise MalformedRequest(f"a string has {size - 1} bytes, {len(view) - position} are left")
    return str(view[position:end], "utf-8"), end


def _string(view: memoryview, position: int) -> tuple[str | None, int]:
    (size,) = _I16.unpack_from(view, position)
    position += 2
    if size < 0:
        if size != -1:
            raise MalformedRequest(f"a string has the length {size}")
        return None, position
    end = position + size
    if end > len(view):
        raise MalformedRequest(f"a string has {size} bytes, {len(view) - position} are left")
    return str(view[position:end], "utf-8"), end


def _compact_count(view: memoryview, position: int) -> tuple[int, int]:
    count, position = read_uvarint(view, position)
    return _checked_count(count - 1, view, position), position


def _count(view: memoryview, position: int) -> tuple[int, int]:
    (count,) = _I32.unpack_from(view, position)
    position += 4
    return count if 0 <= count <= len(view) - position else _checked_count(count, view, position), position


def _checked_count(count: int, view: memoryview, position: int) -> int:
    # Every element has several bytes, so a larger count cannot be true.
    if not 0 <= count <= len(view) - position:
        raise MalformedRequest(f"an array of {count} elements in {len(view) - position} bytes")
    return count
