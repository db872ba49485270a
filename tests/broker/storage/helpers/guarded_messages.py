"""Malformed message sets v0 and v1, and batches converted for old clients, in guarded memory."""

from __future__ import annotations

import random
import struct
import zlib
from types import SimpleNamespace
from typing import Any

import numpy as np

from kafkalog_broker.errors import BrokerError
from kafkalog_broker.fetching import down_conversion, legacy_messages, legacy_wrappers
from kafkalog_broker.fetching.converted_window import ConversionRequest, OversizedFirst
from kafkalog_broker.storage.append import fetched_batches, record_walk
from kafkalog_broker.storage.append.message_layouts import MessageColumn
from kafkalog_spark.format import layout
from tests.log.helpers.guarded import guarded, guarded_bytes
from tests.log.helpers.legacy_builder import GZIP, LZ4, NONE, SNAPPY, LegacyRecord, message_set, wrapper

ALLOCATING = (down_conversion, fetched_batches, legacy_messages, legacy_wrappers, record_walk)
_BODY_AT = layout.MAGIC_AT  # what the CRC is of begins here
_INTERESTING = (0, 1, 0x7F, 0x80, 0xFF)


def lying_set(draw: random.Random, magic: int) -> bytes:
    """Return a message set with changed bytes; every message that still has a CRC has a correct one."""
    records = [
        LegacyRecord(n, draw.choice((None, b"", b"key")), draw.choice((None, b"", b"value" * 9)), 1000 + n)
        for n in range(draw.choice((1, 2, 7)))
    ]
    codec = draw.choice((NONE, NONE, GZIP, SNAPPY, LZ4))
    data = bytearray(message_set(magic, records) if codec == NONE else wrapper(magic, codec, records))
    for _ in range(draw.choice((0, 1, 1, 3))):
        data[draw.randrange(len(data))] = draw.choice((*_INTERESTING, draw.randrange(256)))
    _seal_again(data)
    return bytes(data[: draw.randrange(len(data)) + 1]) if draw.random() < 0.1 else bytes(data)


def _seal_again(data: bytearray) -> None:
    at = 0
    while at + layout.LEGACY_MIN_SIZE[0] <= len(data):
        size = int(struct.unpack_from(">i", data, at + layout.LENGTH_AT)[0]) + layout.LOG_OVERHEAD
        if not layout.LEGACY_MIN_SIZE[0] <= size <= len(data) - at:
            return
        crc = zlib.crc32(data[at + _BODY_AT : at + size])
        struct.pack_into(">I", data, at + layout.LEGACY_CRC_AT, crc)
        at += size


def converted_up(data: bytes, magic: int) -> None:
    """The kernel that makes records of messages, on guarded bytes at both ends: it says the same."""
    from kafkalog_broker.storage.append.message_set_kernel import find_messages, write_records
    from kafkalog_spark.kernels.primitives import CRC32_TABLE

    said = []
    for at_start in (False, True):
        messages = guarded((1000, len(MessageColumn)), np.int64)
        out = guarded(max(len(data), 1), np.uint8)
        payload = guarded_bytes(data, at_start=at_start)
        found, fault = find_messages(
            payload, 0, len(data), magic, 0, layout.MIN_INT64, 1 << 40, 0, CRC32_TABLE, messages
        )
        filled, low, high = write_records(payload, messages[:found], out)
        said.append((int(fault), int(low), int(high), messages[:found].tolist(), out[:filled].tobytes()))
    assert said[0] == said[1], said


def converted_down(data: bytes, draw: random.Random) -> None:
    """What a log holds, for a client that knows messages v0 or v1: whatever it is, it is answered or refused."""
    if len(data) <= layout.MAGIC_AT:
        return  # no log gives less than a whole batch
    memory = guarded_bytes(data).data
    reader: Any = SimpleNamespace(
        find_range=lambda *_, **__: SimpleNamespace(slices=[memory], next_offset=1 << 40),
        read_slice=lambda found: found,
        aborted_transactions=lambda *_: [],
    )
    room = draw.choice((0, 30, 200, 1 << 20))
    oversized_first = draw.choice((OversizedFirst.KEEP, OversizedFirst.CUT_OFF))
    for magic in (0, 1):
        try:
            made = down_conversion.convert(
                reader, ConversionRequest(draw.randrange(9), 1 << 40, magic, room, oversized_first)
            )
        except BrokerError:
            continue
        assert made.size == sum(map(len, made.pieces))
        assert oversized_first is OversizedFirst.KEEP or made.size <= room
