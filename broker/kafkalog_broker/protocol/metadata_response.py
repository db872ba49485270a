"""Metadata responses, version 0 to 13, written by hand: one struct per partition.

v0     [node_id i32, host, port i32] | [error i16, name, [error i16, index i32, leader i32, [replica], [isr]]]
v1     rack nullable string of a node, controller_id i32 after the nodes, is_internal bool after the name
v2     cluster_id nullable string in front of controller_id
v3     throttle_ms i32 in front of everything
v5     [offline replica] of a partition
v7     leader_epoch i32 after the leader
v8     topic_authorized_operations i32; until v10 also cluster_authorized_operations i32
v9     compact strings and arrays, tagged fields
v10    topic_id uuid after the name; from v12 on the name may be null
v13    error i16 at the end
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple
from uuid import UUID

from kafkalog_broker.protocol.api_registry import Encoded
from kafkalog_broker.protocol.frames import compact_string, legacy_count, legacy_string
from kafkalog_spark.format.varints import uvarint

# Node endpoints: where the current leaders of KIP-951 are, as tag 0 of Produce and Fetch responses.


class NodeEndpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None = None


def node_endpoints_tag(endpoints: Iterable[NodeEndpoint]) -> bytes:
    """The tagged fields of a response: none, or tag 0 with the endpoints."""
    nodes = [
        node.node_id.to_bytes(4, "big", signed=True)
        + compact_string(node.host)
        + node.port.to_bytes(4, "big", signed=True)
        + compact_string(node.rack)
        + b"\0"
        for node in endpoints
    ]
    if not nodes:
        return b"\0"
    value = uvarint(len(nodes) + 1) + b"".join(nodes)
    return b"\1\0" + uvarint(len(value)) + value


FIRST_FLEXIBLE_VERSION = 9
OPERATIONS_NOT_ASKED_FOR = -(2**31)

ZERO_ID = UUID(int=0)

_I32 = struct.Struct(">i")


class PartitionMetadata(NamedTuple):
    partition: int
    leader: int
    replicas: Sequence[int]
    isr: Sequence[int]
    leader_epoch: int = 0
    offline_replicas: Sequence[int] = ()
    error_code: int = 0


class TopicMetadata(NamedTuple):
    """`name` None only with an id that is not known (version 12 and later)."""

    name: str | None
    topic_id: UUID
    partitions: Sequence[PartitionMetadata]
    error_code: int = 0
    is_internal: bool = False
    authorized_operations: int = OPERATIONS_NOT_ASKED_FOR


def encode_metadata_response(
    version: int,
    brokers: Sequence[NodeEndpoint],
    topics: Sequence[TopicMetadata],
    *,
    cluster_id: str | None,
    controller_id: int,
    cluster_authorized_operations: int = OPERATIONS_NOT_ASKED_FOR,
    throttle_ms: int = 0,
    error_code: int = 0,
) -> Encoded:
    """The response body."""
    flexible = version >= FIRST_FLEXIBLE_VERSION
    string = compact_string if flexible else legacy_string
    count = _compact_count if flexible else legacy_count
    end = b"\0" if flexible else b""
    out: list[bytes] = []
    if version >= 3:
        out.append(_I32.pack(throttle_ms))
    out.append(count(len(brokers)))
    for node in brokers:
        out += [_I32.pack(node.node_id), string(node.host), _I32.pack(node.port)]
        if version >= 1:
            out.append(string(node.rack))
        out.append(end)
    if version >= 2:
        out.append(string(cluster_id))
    if version >= 1:
        out.append(_I32.pack(controller_id))
    out.append(count(len(topics)))
    for topic in topics:
        out.append(_topic_head(version, topic))
        out.append(count(len(topic.partitions)))
        out += [_partition(version, p) for p in topic.partitions]
        if version >= 8:
            out.append(_I32.pack(topic.authorized_operations))
        out.append(end)
    if 8 <= version <= 10:
        out.append(_I32.pack(cluster_authorized_operations))
    if version >= 13:
        out.append(error_code.to_bytes(2, "big", signed=True))
    out.append(end)
    return Encoded([b"".join(out)])


def _compact_count(count: int) -> bytes:
    return uvarint(count + 1)


def _topic_head(version: int, topic: TopicMetadata) -> bytes:
    out = int(topic.error_code).to_bytes(2, "big", signed=True)
    # Only version 12 and later can say "no name"; before, a name is all there is to ask for.
    name = topic.name if version >= 12 else topic.name or ""
    out += compact_string(name) if version >= FIRST_FLEXIBLE_VERSION else legacy_string(name)
    if version >= 10:
        out += topic.topic_id.bytes
    if version >= 1:
        out += b"\1" if topic.is_internal else b"\0"
    return out


def _partition(version: int, p: PartitionMetadata) -> bytes:
    replicas, isr, offline = p.replicas, p.isr, p.offline_replicas
    if version >= FIRST_FLEXIBLE_VERSION:
        if max(len(replicas), len(isr), len(offline)) > 126:  # their counts would not fit into one byte
            return _large_partition(p)
        return _flexible_struct(len(replicas), len(isr), len(offline)).pack(
            p.error_code, p.partition, p.leader, p.leader_epoch,
            len(replicas) + 1, *replicas, len(isr) + 1, *isr, len(offline) + 1, *offline, 0,
        )  # fmt: skip
    epoch = (p.leader_epoch,) if version >= 7 else ()
    tail = (len(offline), *offline) if version >= 5 else ()
    return _legacy_struct(len(replicas) + len(isr) + len(epoch) + len(tail)).pack(
        p.error_code, p.partition, p.leader, *epoch, len(replicas), *replicas, len(isr), *isr, *tail
    )


@cache
def _flexible_struct(replicas: int, isr: int, offline: int) -> struct.Struct:
    return struct.Struct(f">hiii B{replicas}i B{isr}i B{offline}i B")


@cache
def _legacy_struct(integers: int) -> struct.Struct:
    return struct.Struct(f">hii {integers + 2}i")


def _large_partition(p: PartitionMetadata) -> bytes:
    out = struct.pack(">hiii", p.error_code, p.partition, p.leader, p.leader_epoch)
    for nodes in (p.replicas, p.isr, p.offline_replicas):
        out += uvarint(len(nodes) + 1) + b"".join(map(_I32.pack, nodes))
    return out + b"\0"
