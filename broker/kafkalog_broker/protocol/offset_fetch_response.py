"""OffsetFetch responses, version 0 to 10, written by hand: a request may name 25,000 partitions.

v0-1   [name | [index i32, offset i64, metadata nullable string, error i16]]
v2     error i16 at the end
v3     throttle_ms i32 in front
v5     leader_epoch i32 after the offset
v6     compact strings and arrays, tagged fields
v8     throttle_ms | [group id, topics as above, error i16]
v10    topics by id
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from kafkalog_broker.protocol.api_registry import Encoded
from kafkalog_broker.protocol.frames import compact_string, legacy_count, legacy_string
from kafkalog_spark.format.varints import uvarint

FIRST_VERSION_WITH_ERROR = 2
FIRST_VERSION_WITH_THROTTLE = 3
FIRST_VERSION_WITH_EPOCH = 5
FIRST_FLEXIBLE_VERSION = 6
FIRST_VERSION_WITH_GROUPS = 8
FIRST_VERSION_WITH_TOPIC_IDS = 10

_ZERO_ID = UUID(int=0)
_NO_THROTTLE = b"\0\0\0\0"
_OFFSET = struct.Struct(">iq")
_OFFSET_AND_EPOCH = struct.Struct(">iqi")
_I16 = struct.Struct(">h")


class CommittedOffset(NamedTuple):
    """Committed offset of a partition; -1 for no offset, and for no leader epoch."""

    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    error_code: int


class TopicOffsets:
    """The partitions of one topic, encoded as they are added."""

    def __init__(self, version: int, name: str, topic_id: UUID | None) -> None:
        self._version = version
        self._flexible = version >= FIRST_FLEXIBLE_VERSION
        self._name = name
        self._id = topic_id
        self._count = 0
        self._partitions = bytearray()

    def add(self, partitions: Iterable[CommittedOffset]) -> None:
        out, version = self._partitions, self._version
        for index, offset, leader_epoch, metadata, error_code in partitions:
            self._count += 1
            if version >= FIRST_VERSION_WITH_EPOCH:
                out += _OFFSET_AND_EPOCH.pack(index, offset, leader_epoch)
            else:
                out += _OFFSET.pack(index, offset)
            if self._flexible:
                out += compact_string(metadata) if metadata else b"\1"
                out += _I16.pack(error_code)
                out += b"\0"
            else:
                out += legacy_string(metadata)
                out += _I16.pack(error_code)

    def pieces(self) -> list[bytes | bytearray]:
        if self._version >= FIRST_VERSION_WITH_TOPIC_IDS:
            head = (self._id or _ZERO_ID).bytes
        elif self._flexible:
            head = compact_string(self._name)
        else:
            head = legacy_string(self._name)
        if not self._flexible:
            return [head + legacy_count(self._count), self._partitions]
        return [head + uvarint(self._count + 1), self._partitions, b"\0"]


class GroupOffsets(NamedTuple):
    """Answer for a group. error_code: then there are no topics; before version 2 an error for each partition."""

    group_id: str
    topics: Sequence[TopicOffsets]
    error_code: int = 0


def encode_offset_fetch_response(version: int, groups: Sequence[GroupOffsets]) -> Encoded:
    """The response body in pieces. Up to version 7 there is one group."""
    pieces = Encoded()
    out = bytearray(_NO_THROTTLE if version >= FIRST_VERSION_WITH_THROTTLE else b"")
    if version >= FIRST_VERSION_WITH_GROUPS:
        out += uvarint(len(groups) + 1)
    for group_id, topics, error_code in groups:
        if version >= FIRST_VERSION_WITH_GROUPS:
            out += compact_string(group_id)
        out += uvarint(len(topics) + 1) if version >= FIRST_FLEXIBLE_VERSION else legacy_count(len(topics))
        for topic in topics:
            for piece in topic.pieces():
                if len(piece) < _OWN_PIECE:
                    out += piece
                else:
                    pieces += (out, piece)
                    out = bytearray()
        if version >= FIRST_VERSION_WITH_ERROR:
            out += _I16.pack(error_code)
        if version >= FIRST_VERSION_WITH_GROUPS:
            out += b"\0"
    if version >= FIRST_FLEXIBLE_VERSION:
        out += b"\0"
    pieces.append(out)
    return pieces


_OWN_PIECE = 4096
"""Bytes from which on a piece is not copied."""
