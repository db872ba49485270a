"""Protobuf's wire format in compiled code: varints, and the skipping of values."""

from __future__ import annotations

import numpy as np

from kafkalog_spark.kernels.primitives import helper
from kafkalog_spark.typed.protobuf.field_types import WireType
from kafkalog_spark.typed.protobuf.plan import ProtobufFault

UNTERMINATED = np.int64(2**62)  # position after a varint that does not end; larger than any end
MAX_DEPTH = 100  # nested messages and groups, as in Java's CodedInputStream


@helper
def uvarint(data, at, end):  # type: ignore[no-untyped-def]
    """Read an unsigned varint -> (its 64 bits as int64, position after it or UNTERMINATED).

    A varint has at most ten bytes. As in Java, a tenth byte sets bit 63, whatever its value.
    """
    value = np.uint64(0)
    shift = np.uint64(0)
    while at < end and shift < np.uint64(70):
        byte = np.uint64(data[at])
        at += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            if shift == np.uint64(63):
                value |= np.uint64(1) << shift
            return np.int64(value), at
        shift += np.uint64(7)
    return np.int64(0), UNTERMINATED


@helper
def skip_value(data, at, end, wire, number):  # type: ignore[no-untyped-def]
    """Return the position after a value with wire type `wire` of field `number`, or minus a fault."""
    if wire == WireType.SGROUP:
        return _skip_group(data, at, end, number)
    if wire == WireType.EGROUP:
        return -np.int64(ProtobufFault.GROUP)
    return _skip_plain(data, at, end, wire)


@helper
def _skip_plain(data, at, end, wire):  # type: ignore[no-untyped-def]
    """Return the position after a value that is not a group, or minus a fault."""
    if wire == WireType.VARINT:
        _, at = uvarint(data, at, end)
    elif wire == WireType.I64:
        at += 8
    elif wire == WireType.I32:
        at += 4
    elif wire == WireType.LEN:
        size, at = uvarint(data, at, end)
        size = np.int64(np.int32(size))
        if at > end or size < 0 or size > end - at:
            return -np.int64(ProtobufFault.TRUNCATED)
        at += size
    else:
        return -np.int64(ProtobufFault.TAG)
    return at if at <= end else -np.int64(ProtobufFault.TRUNCATED)


@helper
def _skip_group(data, at, end, number):  # type: ignore[no-untyped-def]
    """Return the position after the end of the group `number`, or minus a fault.

    Groups inside the group are left to `message_merging`, because they would need a stack.
    """
    while True:
        tag, at = uvarint(data, at, end)
        if at > end:
            return -np.int64(ProtobufFault.TRUNCATED)
        tag &= 0xFFFFFFFF
        wire, inner = tag & 7, tag >> 3
        if inner == 0:
            return -np.int64(ProtobufFault.TAG)
        if wire == WireType.SGROUP:
            return -np.int64(ProtobufFault.NEEDS_MERGE)
        if wire == WireType.EGROUP:
            return at if inner == number else -np.int64(ProtobufFault.GROUP)
        at = _skip_plain(data, at, end, wire)
        if at < 0:
            return at
