"""Requests and responses of Produce, versions 0 to 13. Records stay where they are in the frame; one batch is read by
hand. Responses are tuples, as in `hot_responses`.

v0-2    acks i16 | timeout_ms i32 | [name string | [index i32 | message set bytes]]
v3-8    transactional_id nullable string | acks i16 | timeout_ms i32 | [name string | [index i32 | records bytes]]
v9-12   the same with compact strings, compact arrays and tagged fields after every struct
v13     topics by id (16 bytes) instead of name (KIP-516)
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple
from uuid import UUID

from kafkalog_spark.format.varints import read_uvarint

_LEGACY_HEAD = struct.Struct(">hhiih")  # transactional id's size, acks, timeout, topics, size of the name
_LEGACY_PARTITION = struct.Struct(">iii")  # partitions, index, size of the records
_FLEXIBLE_HEAD = struct.Struct(">BhiBB")  # the same; sizes and counts one higher
_FLEXIBLE_PARTITION = struct.Struct(">Bi")

_ZERO_ID = UUID(int=0)
FIRST_TRANSACTIONAL_VERSION = 3
FIRST_FLEXIBLE_VERSION = 9
FIRST_TOPIC_ID_VERSION = 13


@dataclass(slots=True)
class ProduceRequest:
    """`topics`: (name, or UUID from version 13 on; [(partition, records)]). `records`: a read-only memoryview into the
    frame, or None where the client sent null."""

    transactional_id: str | None
    acks: int
    topics: list[tuple[str | UUID, list[tuple[int, memoryview | None]]]]


def produce_request(entity: Any) -> ProduceRequest:
    """The request of an entity of kio's of any version, or of the guides'."""
    return ProduceRequest(
        getattr(entity, "transactional_id", None),
        entity.acks,
        [
            (topic.name if hasattr(topic, "name") else topic.topic_id or _ZERO_ID,
             [(one.index, one.records) for one in topic.partition_data])
            for topic in entity.topic_data
        ],
    )  # fmt: skip


def parse_one_batch(frame: bytes | memoryview, position: int, version: int) -> ProduceRequest | None:
    """The body that begins at `position`, of a request with one batch and no transactional id, in half the time; None
    for all others, and for those in which something is wrong: `codec.decode_request` says what."""
    try:
        if FIRST_FLEXIBLE_VERSION <= version < FIRST_TOPIC_ID_VERSION:
            no_id, acks, _, topics, size = _FLEXIBLE_HEAD.unpack_from(frame, position)
            name_at = position + _FLEXIBLE_HEAD.size
            name_end = name_at + size - 1
            if no_id or topics != 2 or not 0 < size < 0x80:
                return None
            partitions, index = _FLEXIBLE_PARTITION.unpack_from(frame, name_end)
            size, start = read_uvarint(frame, name_end + _FLEXIBLE_PARTITION.size)
            stop = start + size - 1
            if partitions != 2 or not size or frame[stop:] != b"\0\0\0":  # no tags of partition, topic and request
                return None
        elif FIRST_TRANSACTIONAL_VERSION <= version < FIRST_FLEXIBLE_VERSION:
            no_id, acks, _, topics, size = _LEGACY_HEAD.unpack_from(frame, position)
            name_at = position + _LEGACY_HEAD.size
            name_end = name_at + size
            if no_id != -1 or topics != 1 or size < 0:
                return None
            partitions, index, size = _LEGACY_PARTITION.unpack_from(frame, name_end)
            start = name_end + _LEGACY_PARTITION.size
            stop = start + size
            if partitions != 1 or size < 0 or stop != len(frame):
                return None
        else:
            return None
        name = str(frame[name_at:name_end], "utf-8")
    except (struct.error, IndexError, ValueError):
        return None
    return ProduceRequest(None, acks, [(name, [(index, memoryview(frame)[start:stop].toreadonly())])])


class RecordError(NamedTuple):
    """A record, by its index in the batch, that was wrong."""

    batch_index: int
    batch_index_error_message: str | None


@dataclass(slots=True)
class PartitionProduceResponse:
    """Answer for the batch of a partition. -1 stands for an offset or time that is not known."""

    index: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[RecordError] = ()
    error_message: str | None = None
    current_leader: ClassVar[None] = None


class TopicProduceResponse(NamedTuple):
    name: str | UUID
    partition_responses: Sequence[PartitionProduceResponse]

    @property
    def topic_id(self) -> str | UUID:
        return self.name


class ProduceResponse(NamedTuple):
    responses: Sequence[TopicProduceResponse]
    throttle_time: int = 0
    node_endpoints: tuple[()] = ()
