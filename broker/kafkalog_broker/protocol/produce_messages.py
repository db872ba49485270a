"""Produce requests and responses, built without the classes of `api_messages` (see `fetch_messages`).

Most requests have one batch and no transactional ID. For versions 3 to 12, `parse_one_batch` reads them faster than the
compiled reader. Records are views of the frame. The layout of a request, with arrays in brackets:

    v0-v2    acks int16 | timeout_ms int32 | [name string | [index int32 | message set bytes]]
    v3-v8    transactional_id nullable string | acks int16 | timeout_ms int32 | [name string | [index int32 | records]]
    v9-v12   the same with compact strings and arrays, and tagged fields after every struct
    v13      topics by ID (16 bytes) instead of name (KIP-516)
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple
from uuid import UUID

from kafkalog_spark.format.varints import read_uvarint

FIRST_TRANSACTIONAL_VERSION = 3
FIRST_FLEXIBLE_VERSION = 9
FIRST_TOPIC_ID_VERSION = 13

_LEGACY_HEAD = struct.Struct(">hhiih")  # length of the transactional ID, acks, timeout, topic count, length of the name
_LEGACY_PARTITION = struct.Struct(">iii")  # partition count, index, size of the records
_FLEXIBLE_HEAD = struct.Struct(">BhiBB")  # the same; each length and count is one higher and fits one byte
_FLEXIBLE_PARTITION = struct.Struct(">Bi")  # partition count, index

_ZERO_ID = UUID(int=0)


@dataclass(slots=True)
class ProduceRequest:
    """A request of any version.

    Attributes:
        topics: Name, or topic ID from version 13 on, with the partitions of the topic: index, and records as a
            read-only view of the frame, or None if the client sent null.
    """

    transactional_id: str | None
    acks: int
    topics: list[tuple[str | UUID, list[tuple[int, memoryview | None]]]]


class RecordError(NamedTuple):
    """An invalid record, by its index in the batch."""

    batch_index: int
    batch_index_error_message: str | None


@dataclass(slots=True)
class PartitionProduceResponse:
    """Response for the batch of one partition. -1 stands for an unknown offset or time."""

    index: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[RecordError] = ()
    error_message: str | None = None
    current_leader: ClassVar[None] = None


class TopicProduceResponse(NamedTuple):
    """Responses for partitions of one topic. `name` is the topic ID from version 13 on."""

    name: str | UUID
    partition_responses: Sequence[PartitionProduceResponse]

    @property
    def topic_id(self) -> str | UUID:
        return self.name


class ProduceResponse(NamedTuple):
    """A whole response. `node_endpoints` is empty because this node leads all partitions."""

    responses: Sequence[TopicProduceResponse]
    throttle_time: int = 0
    node_endpoints: tuple[()] = ()


def produce_request(entity: Any) -> ProduceRequest:
    """Return the ProduceRequest for a request that the compiled reader has read."""
    return ProduceRequest(
        entity.transactional_id,
        entity.acks,
        [
            (topic.topic_id or _ZERO_ID if entity.__version__ >= FIRST_TOPIC_ID_VERSION else topic.name,
             [(partition.index, partition.records) for partition in topic.partition_data])
            for topic in entity.topic_data
        ],
    )  # fmt: skip


def parse_one_batch(frame: bytes | memoryview, position: int, version: int) -> ProduceRequest | None:
    """Read the body of a request with one batch and no transactional ID.

    Args:
        frame: The whole frame.
        position: Where the body begins.
        version: Version of the request.

    Returns:
        The request, or None if it has another form or is malformed. The compiled reader then reads it, or reports what
        is malformed.
    """
    try:
        if FIRST_FLEXIBLE_VERSION <= version < FIRST_TOPIC_ID_VERSION:
            transactional_id_length, acks, _, topics, size = _FLEXIBLE_HEAD.unpack_from(frame, position)
            name_start = position + _FLEXIBLE_HEAD.size
            name_end = name_start + size - 1
            if transactional_id_length or topics != 2 or not 0 < size < 0x80:
                return None
            partitions, index = _FLEXIBLE_PARTITION.unpack_from(frame, name_end)
            size, start = read_uvarint(frame, name_end + _FLEXIBLE_PARTITION.size)
            end = start + size - 1
            if partitions != 2 or not size or frame[end:] != b"\0\0\0":  # no tags of partition, topic and request
                return None
        elif FIRST_TRANSACTIONAL_VERSION <= version < FIRST_FLEXIBLE_VERSION:
            transactional_id_length, acks, _, topics, size = _LEGACY_HEAD.unpack_from(frame, position)
            name_start = position + _LEGACY_HEAD.size
            name_end = name_start + size
            if transactional_id_length != -1 or topics != 1 or size < 0:
                return None
            partitions, index, size = _LEGACY_PARTITION.unpack_from(frame, name_end)
            start = name_end + _LEGACY_PARTITION.size
            end = start + size
            if partitions != 1 or size < 0 or end != len(frame):
                return None
        else:
            return None
        name = str(frame[name_start:name_end], "utf-8")
    except (struct.error, IndexError, ValueError):
        return None
    return ProduceRequest(None, acks, [(name, [(index, memoryview(frame)[start:end].toreadonly())])])
