"""Fetch as its client writes and reads it, versions 5 to 13, by hand: records stay where they lie in the response.

Version 5 is that of Kafka 0.11; 7 has sessions (KIP-227), 9 leader epochs (KIP-320), 12 is flexible and says where logs
part (KIP-595), 13 names topics by their ids (KIP-516), and is served by every release since 3.1.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from typing import NamedTuple

from kafkalog_broker.errors import MalformedRequest
from kafkalog_broker.protocol.client_codec import request_body
from kafkalog_broker.protocol.frames import read_uvarint, skip_tagged_fields

FETCH = 1
MIN_VERSION, MAX_VERSION = 5, 13
SESSIONS, TOPIC_IDS = 7, 13
_FLEXIBLE = 12
_DIVERGING_EPOCH = 0  # tag of a partition
_DIVERGING = struct.Struct(">iq")
_PARTITION = struct.Struct(">ihqqq")  # index, error, high watermark, last stable offset, log start offset

Key = tuple[str, int]
"""Topic and partition."""


class FetchFrom(NamedTuple):
    """Fetch position of a partition. topic_id: zero where it is not known. last_epoch: that of the batch before
    `offset`; leader_epoch: of the leader that is asked; -1 for unknown."""

    topic_id: uuid.UUID
    offset: int
    max_bytes: int
    leader_epoch: int = -1
    last_epoch: int = -1


class FetchCall(NamedTuple):
    """A request. session: (id, epoch), (0, -1) without one. Sizes in bytes."""

    session: tuple[int, int]
    partitions: Sequence[tuple[Key, FetchFrom]]
    forgotten: Sequence[tuple[Key, uuid.UUID]]
    max_wait_ms: int
    min_bytes: int
    max_bytes: int


class Fetched(NamedTuple):
    """Answer for a partition. topic: its name or, from version 13 on, its id. error: Kafka's code, 0 for none.
    diverging: (epoch, end offset) of the leader's log where it is not what the client says it has."""

    topic: str | uuid.UUID
    partition: int
    error: int
    high_watermark: int
    log_start_offset: int
    records: memoryview
    diverging: tuple[int, int] | None


class FetchAnswer(NamedTuple):
    """A response. throttle_ms: for so long the client is to be quiet."""

    throttle_ms: int
    error: int
    session_id: int
    partitions: list[Fetched]


class _Partition(NamedTuple):
    """A partition in the request."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    partition_max_bytes: int
    log_start_offset: int = -1


def encode_fetch(call: FetchCall, version: int) -> bytes:
    """The body of the request, which reads committed and uncommitted records alike."""
    wanted: dict[tuple[str, uuid.UUID], list[_Partition]] = {}
    for (name, partition), fetch in call.partitions:
        wanted.setdefault((name, fetch.topic_id), []).append(
            _Partition(partition, fetch.leader_epoch, fetch.offset, fetch.last_epoch, fetch.max_bytes)
        )
    forgotten: dict[tuple[str, uuid.UUID], list[int]] = {}
    for (name, partition), topic_id in call.forgotten:
        forgotten.setdefault((name, topic_id), []).append(partition)
    topics, forgotten_topics = (
        [{"topic": name, "topic_id": topic_id, "partitions": partitions} for (name, topic_id), partitions in of.items()]
        for of in (wanted, forgotten)
    )
    session_id, session_epoch = call.session
    return request_body(
        FETCH, version, replica_id=-1, max_wait=call.max_wait_ms, min_bytes=call.min_bytes, max_bytes=call.max_bytes,
        session_id=session_id, session_epoch=session_epoch, topics=topics, forgotten_topics_data=forgotten_topics,
    )  # fmt: skip


def decode_fetch(body: memoryview, version: int, most: int) -> FetchAnswer:
    """Read a response. most: partitions that it may have. Raises MalformedRequest for what is none."""
    reader = _Reader(body, version >= _FLEXIBLE)
    try:
        throttle_ms, error, session_id = reader.i32(), 0, 0
        if version >= SESSIONS:
            error, session_id = reader.i16(), reader.i32()
        partitions: list[Fetched] = []
        for _ in range(reader.count()):
            topic = uuid.UUID(bytes=bytes(reader.take(16))) if version >= TOPIC_IDS else reader.string()
            count = reader.count()
            if count > most - len(partitions):
                raise ValueError(f"more than the {most} partitions that were asked for")
            partitions += [_partition(reader, topic, version) for _ in range(count)]
            reader.skip_tags()
        reader.skip_tags()
    except (struct.error, IndexError, ValueError) as problem:
        raise MalformedRequest(f"a response to Fetch version {version} cannot be read: {problem}") from None
    return FetchAnswer(throttle_ms, error, session_id, partitions)


def _partition(reader: _Reader, topic: str | uuid.UUID, version: int) -> Fetched:
    index, error, high_watermark, _, log_start_offset = reader.unpack(_PARTITION)
    for _ in range(reader.count()):
        reader.take(16)  # an aborted transaction: the log says the same
        reader.skip_tags()
    if version >= 11:
        reader.i32()  # preferred read replica
    records = reader.take(reader.length())
    diverging = reader.diverging()
    return Fetched(topic, index, error, high_watermark, log_start_offset, records, diverging)


class _Reader:
    """A place in a response."""

    def __init__(self, data: memoryview, flexible: bool) -> None:
        self._data = data
        self._at = 0
        self._flexible = flexible

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        found = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return found

    def i16(self) -> int:
        return int.from_bytes(self.take(2), "big", signed=True)

    def i32(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def take(self, size: int) -> memoryview:
        if not 0 <= size <= len(self._data) - self._at:
            raise ValueError(f"{size} bytes at byte {self._at} of {len(self._data)}")
        found = self._data[self._at : self._at + size]
        self._at += size
        return found

    def length(self) -> int:
        """Length of bytes or an array, 0 for null."""
        if not self._flexible:
            return max(self.i32(), 0)
        value, self._at = read_uvarint(self._data, self._at)
        return max(value - 1, 0)

    count = length

    def string(self) -> str:
        size = self.length() if self._flexible else self.i16()
        return str(self.take(size), "utf-8")

    def skip_tags(self) -> None:
        if self._flexible:
            self._at = skip_tagged_fields(self._data, self._at)

    def diverging(self) -> tuple[int, int] | None:
        """The tagged fields of a partition, of which one matters."""
        if not self._flexible:
            return None
        found = None
        count, self._at = read_uvarint(self._data, self._at)
        for _ in range(count):
            tag, self._at = read_uvarint(self._data, self._at)
            size, self._at = read_uvarint(self._data, self._at)
            field = self.take(size)
            if tag == _DIVERGING_EPOCH:
                epoch, end_offset = _DIVERGING.unpack_from(field)
                found = (epoch, end_offset)
        return found
