"""ShareFetch responses, versions 1 and 2, written by hand: records are passed on as the buffers they are in.

throttle_ms i32, error i16, error message, acquisition lock timeout in ms i32, [topic id, [index i32, error i16, error
message, acknowledge error i16, acknowledge error message, leader id i32, leader epoch i32, records, [first offset i64,
last offset i64, delivery count i16]]], [node endpoints]; flexible.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kafkalog_broker.protocol.api_registry import Encoded
from kafkalog_broker.protocol.wire import compact_string, uvarint

_HEAD = struct.Struct(">ih")
_I32 = struct.Struct(">i")
_PARTITION = struct.Struct(">ih")
_ERROR = struct.Struct(">h")
_NO_LEADER = struct.Struct(">iiB").pack(0, 0, 0)  # what Kafka answers where the leader is still the one asked
_NO_TOPIC = UUID(int=0)
_ACQUIRED = struct.Struct(">qqhB")

_AT_ONCE = 40
"""Partitions that are written in a step: 0.1 ms."""


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
) -> Generator[None, None, Encoded]:
    """The response body in pieces, in steps."""
    pieces = Encoded()
    out = bytearray(_HEAD.pack(throttle_ms, error_code))
    out += compact_string(error_message) + _I32.pack(lock_timeout_ms) + uvarint(len(topics) + 1)
    written = 0
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
            written += 1
            if not written % _AT_ONCE:
                yield
        out += b"\0"
    out += b"\1\0"  # no node endpoints: there is one node
    pieces.append(out)
    return pieces
