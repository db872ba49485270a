"""Produce responses, version 0 to 13, written by hand: one struct per partition in the usual case.

v0     [name | [index i32, error i16, base_offset i64]]
v1     throttle_ms i32 at the end
v2-4   [name | [index i32, error i16, base_offset i64, log_append_time_ms i64]] | throttle_ms i32
v5     log_start_offset i64 after log_append_time_ms
v8     [batch_index i32, message nullable string], error_message nullable string
v9     compact strings and arrays, tagged fields
v10    tag 0 of a partition: current leader (KIP-951); tag 0 of the response: node endpoints
v13    topics by id
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from kafkalog_broker.protocol.api_registry import Encoded
from kafkalog_broker.protocol.frames import compact_string, legacy_count, legacy_string
from kafkalog_broker.protocol.metadata_response import NodeEndpoint, node_endpoints_tag
from kafkalog_spark.format.varints import uvarint

FIRST_VERSION_WITH_THROTTLE = 1
FIRST_VERSION_WITH_TIME = 2
FIRST_VERSION_WITH_LOG_START_OFFSET = 5
FIRST_VERSION_WITH_RECORD_ERRORS = 8
FIRST_FLEXIBLE_VERSION = 9
FIRST_VERSION_WITH_LEADER = 10

_V0 = struct.Struct(">ihq")
_V2 = struct.Struct(">ihqq")
_V5 = struct.Struct(">ihqqq")
_V8 = struct.Struct(">ihqqqih")  # no record errors, no message
_V9 = struct.Struct(">ihqqqBBB")  # no record errors, no message, no tags
_I32 = struct.Struct(">i")
_LEADER = struct.Struct(">iiB")  # leader id, leader epoch, no tags


@dataclass(slots=True)
class PartitionProduceResponse:
    """Answer for the batch of a partition. -1 stands for an offset or time that is not known.

    `record_errors`: (index of the record in the batch, message or None). `current_leader`: (node id, leader epoch),
    only with NOT_LEADER_OR_FOLLOWER.
    """

    index: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()
    error_message: str | None = None
    current_leader: tuple[int, int] | None = None


Topics = Sequence[tuple[str | UUID, Sequence[PartitionProduceResponse]]]


def encode_produce_response(
    version: int, topics: Topics, throttle_ms: int = 0, node_endpoints: Iterable[NodeEndpoint] = ()
) -> Encoded:
    """The response body. Topics are named up to version 12 and UUIDs from version 13 on."""
    flexible = version >= FIRST_FLEXIBLE_VERSION
    out = [uvarint(len(topics) + 1) if flexible else legacy_count(len(topics))]
    for topic, partitions in topics:
        if isinstance(topic, UUID):
            out.append(topic.bytes)
        else:
            out.append(compact_string(topic) if flexible else legacy_string(topic))
        out.append(uvarint(len(partitions) + 1) if flexible else legacy_count(len(partitions)))
        for p in partitions:
            out.append(_partition(version, p))
        if flexible:
            out.append(b"\0")
    if version >= FIRST_VERSION_WITH_THROTTLE:
        out.append(_I32.pack(throttle_ms))
    if version >= FIRST_VERSION_WITH_LEADER:
        out.append(node_endpoints_tag(node_endpoints))
    elif flexible:
        out.append(b"\0")
    return Encoded([b"".join(out)])


def _partition(version: int, p: PartitionProduceResponse) -> bytes:
    usual = not p.record_errors and p.error_message is None and p.current_leader is None
    if version >= FIRST_FLEXIBLE_VERSION:
        if usual:
            return _V9.pack(p.index, p.error_code, p.base_offset, p.log_append_time_ms, p.log_start_offset, 1, 0, 0)
        return _unusual_flexible(version, p)
    if version >= FIRST_VERSION_WITH_RECORD_ERRORS:
        if usual:
            return _V8.pack(p.index, p.error_code, p.base_offset, p.log_append_time_ms, p.log_start_offset, 0, -1)
        errors = [_I32.pack(index) + legacy_string(message) for index, message in p.record_errors]
        return b"".join(
            (
                _V5.pack(p.index, p.error_code, p.base_offset, p.log_append_time_ms, p.log_start_offset),
                legacy_count(len(errors)),
                *errors,
                legacy_string(p.error_message),
            )
        )
    if version >= FIRST_VERSION_WITH_LOG_START_OFFSET:
        return _V5.pack(p.index, p.error_code, p.base_offset, p.log_append_time_ms, p.log_start_offset)
    if version >= FIRST_VERSION_WITH_TIME:
        return _V2.pack(p.index, p.error_code, p.base_offset, p.log_append_time_ms)
    return _V0.pack(p.index, p.error_code, p.base_offset)


def _unusual_flexible(version: int, p: PartitionProduceResponse) -> bytes:
    errors = [_I32.pack(index) + compact_string(message) + b"\0" for index, message in p.record_errors]
    tags = b"\0"
    if p.current_leader is not None and version >= FIRST_VERSION_WITH_LEADER:
        tags = _leader_tag(p.current_leader)
    return b"".join(
        (
            _V5.pack(p.index, p.error_code, p.base_offset, p.log_append_time_ms, p.log_start_offset),
            uvarint(len(errors) + 1),
            *errors,
            compact_string(p.error_message),
            tags,
        )
    )


def _leader_tag(leader: tuple[int, int]) -> bytes:
    """Tag 0 of a partition, the current leader (node id, leader epoch) of KIP-951."""
    if leader == (-1, -1):  # the default is not sent
        return b"\0"
    return bytes((1, 0, _LEADER.size)) + _LEADER.pack(*leader, 0)
