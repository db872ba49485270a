"""Protobuf's wire format in compiled code: tags, values to be passed over, UTF-8, and the first look at a message."""

from __future__ import annotations

import numpy as np

from kafkalog_spark.kernels.primitives import helper
from kafkalog_spark.typed.protobuf.plan import ProtobufFault

FAR = np.int64(2**62)  # position after a varint that does not end: beyond every end
LENGTH_DELIMITED = 2  # wire type of strings, bytes, messages and packed fields
MOST_NESTED = 100  # messages inside each other: Java's CodedInputStream allows as many


@helper
def uvarint(data, at, end):  # type: ignore[no-untyped-def]
    """An unsigned varint -> (its 64 bits as int64, position after it); (0, FAR) where it does not end in ten bytes. The
    tenth byte says nothing but that: Java takes bit 63 as set where there is one."""
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
    return np.int64(0), FAR


@helper
def pass_over(data, at, end, wire, number):  # type: ignore[no-untyped-def]
    """Position after the value of an unknown field; below 0: minus a fault."""
    if wire == 3:
        return _pass_group(data, at, end, number)
    if wire == 4:
        return -np.int64(ProtobufFault.GROUP)
    return _pass_plain(data, at, end, wire)


@helper
def _pass_plain(data, at, end, wire):  # type: ignore[no-untyped-def]
    """Position after a value that is no group; below 0: minus a fault."""
    if wire == 0:
        _, at = uvarint(data, at, end)
    elif wire == 1:
        at += 8
    elif wire == 5:
        at += 4
    elif wire == 2:
        size, at = uvarint(data, at, end)
        size = np.int64(np.int32(size))
        if at > end or size < 0 or size > end - at:
            return -np.int64(ProtobufFault.TRUNCATED)
        at += size
    else:
        return -np.int64(ProtobufFault.TAG)
    return at if at <= end else -np.int64(ProtobufFault.TRUNCATED)


@helper
def _pass_group(data, at, end, number):  # type: ignore[no-untyped-def]
    """Position after the end of the group `number`; groups inside it are left to reading.merged: a kernel has no room
    to note where each ends."""
    while True:
        tag, at = uvarint(data, at, end)
        if at > end:
            return -np.int64(ProtobufFault.TRUNCATED)
        tag &= 0xFFFFFFFF
        wire, inner = tag & 7, tag >> 3
        if inner == 0:
            return -np.int64(ProtobufFault.TAG)
        if wire == 3:
            return -np.int64(ProtobufFault.JOIN)
        if wire == 4:
            return at if inner == number else -np.int64(ProtobufFault.GROUP)
        at = _pass_plain(data, at, end, wire)
        if at < 0:
            return at
