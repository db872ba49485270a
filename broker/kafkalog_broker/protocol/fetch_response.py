"""Fetch responses, version 0 to 18, written by hand: records are passed on as the buffers they are in.

v0     [name | [index i32, error i16, high_watermark i64, records nullable bytes]]
v1-3   throttle_ms i32 in front
v4     throttle_ms i32 | [name | [index i32, error i16, high_watermark i64, last_stable_offset i64,
       nullable [producer_id i64, first_offset i64], records nullable bytes]]
v5     log_start_offset i64 after last_stable_offset
v7     error i16, session_id i32 after throttle_ms
v11    preferred_read_replica i32 in front of the records
v12    compact strings and arrays, tagged fields (0 diverging epoch, 1 current leader, 2 snapshot id)
v13    topics by id
v16    tag 0 of the response: node endpoints
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kafkalog_broker.protocol.api_registry import Encoded
from kafkalog_broker.protocol.frames import compact_string, legacy_count, legacy_string
from kafkalog_broker.protocol.metadata_response import NodeEndpoint, node_endpoints_tag
from kafkalog_spark.format.varints import uvarint

FIRST_VERSION_WITH_THROTTLE = 1
FIRST_VERSION_WITH_TRANSACTIONS = 4
FIRST_VERSION_WITH_LOG_START_OFFSET = 5
FIRST_SESSION_VERSION = 7
FIRST_VERSION_WITH_PREFERRED_REPLICA = 11
FIRST_FLEXIBLE_VERSION = 12
FIRST_VERSION_WITH_ENDPOINTS = 16

_I32 = struct.Struct(">i")
_SESSION = struct.Struct(">ihi")
_V0 = struct.Struct(">ihq")
_V4 = struct.Struct(">ihqq")
_V5 = struct.Struct(">ihqqq")
_V12 = struct.Struct(">ihqqqBi")  # no aborted transactions
_ABORTED = struct.Struct(">qq")
_EPOCH_END = struct.Struct(">iqB")  # epoch, end offset, no tags
_LEADER = struct.Struct(">iiB")  # leader id, leader epoch, no tags


@dataclass(slots=True)
class PartitionFetchResponse:
    """Answer for a partition. -1 stands for an offset that is not known.

    `records`: whole batches in order, bytes-like pieces or slices of files, sent untouched; None is sent as null, () as
    empty, which is what Kafka does on errors. `aborted_transactions`: (producer id, first offset) pairs, None for
    read_uncommitted. `diverging_epoch`: (epoch, end offset). `current_leader`: (node id, leader epoch).
    """

    index: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Sequence[Any] | None = ()
    aborted_transactions: Sequence[tuple[int, int]] | None = None
    preferred_read_replica: int = -1
    diverging_epoch: tuple[int, int] | None = None
    current_leader: tuple[int, int] | None = None


class RefusedPartitions:
    """Partitions that get the same error and nothing else: numbers, whose answers are made when they are written."""

    def __init__(self, error_code: int) -> None:
        self.error_code = error_code
        self.indexes: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self.indexes)

    def __iter__(self) -> Iterator[PartitionFetchResponse]:
        # An empty list of aborted transactions, not null: as Kafka where no log was asked.
        return (PartitionFetchResponse(index, self.error_code, aborted_transactions=()) for index in self.indexes)

    def __contains__(self, answer: object) -> bool:
        return any(one == answer for one in self)


Topics = Sequence[tuple[str | UUID, Collection[PartitionFetchResponse]]]


def encode_fetch_response(
    version: int,
    topics: Topics,
    *,
    error_code: int = 0,
    session_id: int = 0,
    throttle_ms: int = 0,
    node_endpoints: Iterable[NodeEndpoint] = (),
) -> Encoded:
    """The response body in pieces. Topics are named up to version 12 and UUIDs from version 13 on."""
    flexible = version >= FIRST_FLEXIBLE_VERSION
    pieces = Encoded()
    out = bytearray()  # what lies between two runs of records
    if version >= FIRST_SESSION_VERSION:
        out += _SESSION.pack(throttle_ms, error_code, session_id)
    elif version >= FIRST_VERSION_WITH_THROTTLE:
        out += _I32.pack(throttle_ms)
    out += uvarint(len(topics) + 1) if flexible else legacy_count(len(topics))
    for topic, partitions in topics:
        if isinstance(topic, UUID):
            out += topic.bytes
        else:
            out += compact_string(topic) if flexible else legacy_string(topic)
        out += uvarint(len(partitions) + 1) if flexible else legacy_count(len(partitions))
        for p in partitions:
            out += _flexible_fields(p) if flexible else _legacy_fields(version, p)
            if p.records is None:
                out += b"\0" if flexible else b"\xff\xff\xff\xff"
            else:
                size = sum(map(len, p.records))
                out += uvarint(size + 1) if flexible else _I32.pack(size)
                if size:
                    pieces.append(out)
                    pieces += p.records
                    out = bytearray()
            if flexible:
                out += _partition_tags(p)
        if flexible:
            out += b"\0"
    if version >= FIRST_VERSION_WITH_ENDPOINTS:
        out += node_endpoints_tag(node_endpoints)
    elif flexible:
        out += b"\0"
    if out:
        pieces.append(out)
    return pieces


def _flexible_fields(p: PartitionFetchResponse) -> bytes:
    aborted = p.aborted_transactions
    if not aborted:
        return _V12.pack(
            p.index,
            p.error_code,
            p.high_watermark,
            p.last_stable_offset,
            p.log_start_offset,
            0 if aborted is None else 1,
            p.preferred_read_replica,
        )
    return b"".join(
        (
            _V5.pack(p.index, p.error_code, p.high_watermark, p.last_stable_offset, p.log_start_offset),
            uvarint(len(aborted) + 1),
            *(_ABORTED.pack(producer_id, first_offset) + b"\0" for producer_id, first_offset in aborted),
            _I32.pack(p.preferred_read_replica),
        )
    )


def _legacy_fields(version: int, p: PartitionFetchResponse) -> bytes:
    if version >= FIRST_VERSION_WITH_LOG_START_OFFSET:
        out = _V5.pack(p.index, p.error_code, p.high_watermark, p.last_stable_offset, p.log_start_offset)
    elif version >= FIRST_VERSION_WITH_TRANSACTIONS:
        out = _V4.pack(p.index, p.error_code, p.high_watermark, p.last_stable_offset)
    else:
        return _V0.pack(p.index, p.error_code, p.high_watermark)
    if p.aborted_transactions is None:
        out += b"\xff\xff\xff\xff"
    else:
        out += legacy_count(len(p.aborted_transactions))
        out += b"".join(_ABORTED.pack(*aborted) for aborted in p.aborted_transactions)
    if version >= FIRST_VERSION_WITH_PREFERRED_REPLICA:
        out += _I32.pack(p.preferred_read_replica)
    return out


def _partition_tags(p: PartitionFetchResponse) -> bytes:
    if p.diverging_epoch is None and p.current_leader is None:
        return b"\0"
    tags = []
    if p.diverging_epoch is not None and p.diverging_epoch != (-1, -1):  # the default is not sent
        tags.append(bytes((0, _EPOCH_END.size)) + _EPOCH_END.pack(*p.diverging_epoch, 0))
    if p.current_leader is not None and p.current_leader != (-1, -1):
        tags.append(bytes((1, _LEADER.size)) + _LEADER.pack(*p.current_leader, 0))
    return bytes((len(tags),)) + b"".join(tags)


# ShareFetch responses, versions 1 and 2, written by hand: records are passed on as the buffers they are in.
#
# throttle_ms i32, error i16, error message, acquisition lock timeout in ms i32, [topic id, [index i32, error i16,
# error message, acknowledge error i16, acknowledge error message, leader id i32, leader epoch i32, records, [first
# offset i64, last offset i64, delivery count i16]]], [node endpoints]; flexible.

_HEAD = struct.Struct(">ih")
_PARTITION = struct.Struct(">ih")
_ERROR = struct.Struct(">h")
_NO_LEADER = struct.Struct(">iiB").pack(0, 0, 0)  # what Kafka answers where the leader is still the one asked
_NO_TOPIC = UUID(int=0)
_ACQUIRED = struct.Struct(">qqhB")


@dataclass(slots=True)
class ShareFetchPartition:
    """records: bytes-like pieces or slices of files; acquired: (first offset, last offset, delivery count)."""

    index: int
    error_code: int = 0
    error_message: str | None = None
    acknowledge_error_code: int = 0
    acknowledge_error_message: str | None = None
    records: Sequence[Any] = ()
    acquired: Sequence[tuple[int, int, int]] = field(default=())


def encode_share_fetch(
    topics: Sequence[tuple[UUID | None, Sequence[ShareFetchPartition]]],
    *,
    error_code: int = 0,
    error_message: str | None = None,
    lock_timeout_ms: int = 0,
    throttle_ms: int = 0,
) -> Encoded:
    """The response body in pieces."""
    pieces = Encoded()
    out = bytearray(_HEAD.pack(throttle_ms, error_code))
    out += compact_string(error_message) + _I32.pack(lock_timeout_ms) + uvarint(len(topics) + 1)
    for topic_id, partitions in topics:
        out += (topic_id or _NO_TOPIC).bytes + uvarint(len(partitions) + 1)
        for partition in partitions:
            out += _PARTITION.pack(partition.index, partition.error_code) + compact_string(partition.error_message)
            out += _ERROR.pack(partition.acknowledge_error_code)
            out += compact_string(partition.acknowledge_error_message) + _NO_LEADER
            size = sum(map(len, partition.records))
            out += uvarint(size + 1)
            if size:
                pieces.append(out)
                pieces += partition.records
                out = bytearray()
            out += uvarint(len(partition.acquired) + 1)
            for acquired in partition.acquired:
                out += _ACQUIRED.pack(*acquired, 0)
            out += b"\0"
        out += b"\0"
    out += b"\1\0"  # no node endpoints: there is one node
    pieces.append(out)
    return pieces
