"""What the records of one v2 batch say, and whether they are what the format allows (DefaultRecord.readFrom).

Small batches are walked in plain Python: a compiled walk pays from a few records on, and a broker that has seen none
of those does not hold Numba in memory. Both give the same answers.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from kafkalog_spark.errors import CorruptBatch

PLAIN_RECORDS = 4
"""Up to so many records the plain walk is as quick as the call of the compiled one (about 2 us a record, 4 us a call).
"""

PLAIN_WHILE_LOADING = 1000
"""Up to so many records nobody waits until the compiled walk is there: 0.3 s when it was compiled before, else 2 s."""


class Walk(IntEnum):
    """How a walk ended."""

    DONE = 0
    TOO_FEW = 1  # the bytes end before the records do
    BAD_LENGTH = 2
    BAD_RECORD = 3
    TOO_MANY = 4  # bytes are left behind the last record


_FAULTS = {
    Walk.TOO_FEW: "the records end early: {index} of {count} are whole",
    Walk.BAD_LENGTH: "record {index} has a negative length",
    Walk.BAD_RECORD: "record {index} is malformed",
    Walk.TOO_MANY: "bytes are left behind the {count} records that the header announces",
}


class F(IntEnum):
    """Places in the facts of a walk: int64[len(F)]."""

    COUNT = 0  # records that are whole and right
    AT = 1  # position behind them
    MAX_TIMESTAMP = 2  # ms, -1 when no record has one
    MAX_INDEX = 3  # of the first record with it, -1
    LOW = 4  # smallest timestamp of the records that have one
    HIGH = 5  # largest
    IN_SEQUENCE = 6  # 1: offset deltas are 0, 1, 2 ...
    NULL_KEYS = 7


class RecordFacts(NamedTuple):
    """What a batch's records say. Timestamps in ms; `low` is above `high` when no record has a timestamp."""

    records: int
    end: int
    max_timestamp: int
    max_index: int
    low: int
    high: int
    in_sequence: int
    null_keys: int


class RecordView(NamedTuple):
    """One record of a plain walk: where it lies, and the parts of it that a broker looks at."""

    place: int  # in the batch, from 0
    start: int
    body: int  # behind the length
    offset_delta_at: int
    offset_delta_end: int
    end: int
    timestamp: int  # ms, base timestamp added
    offset_delta: int
    has_key: bool


_kernel: Any = None
_kernel_lock = threading.Lock()
_loading: threading.Thread | None = None


def load_kernel() -> Any:
    """Import the compiled walk, once. Blocks for as long as that takes."""
    global _kernel
    if _kernel is None:
        with _kernel_lock:
            if _kernel is None:
                from broker.storage import record_walk_kernel

                _kernel = record_walk_kernel
                # Numba stays, and is 75 thousand objects: a full collection would take 50 ms longer, with all waiting.
                gc.freeze()
    return _kernel


def _kernel_for(count: int) -> Any:
    """The compiled walk, or None where the plain one is to do. The first batch that is not tiny has it loaded."""
    global _loading
    if count <= PLAIN_RECORDS or _kernel is not None:
        return None if count <= PLAIN_RECORDS else _kernel
    if count > PLAIN_WHILE_LOADING:
        return load_kernel()
    if _loading is None:
        _loading = threading.Thread(target=load_kernel, name="load-record-walk")
        _loading.start()
    return None


def walk_records(payload: memoryview, count: int, base_timestamp: int) -> RecordFacts:
    """Walk the uncompressed records `payload` of a batch that announces `count`. Safe to call from several threads.

    Raises CorruptBatch when they are not exactly `count` well-formed records.
    """
    if count > len(payload):  # a record takes 7 bytes: no walk is needed to see a count that lies, or that is huge
        raise _fault(Walk.TOO_FEW, 0, count)
    kernel = _kernel_for(count)
    if kernel is None:
        return _plain_facts(payload, count, base_timestamp)
    data = np.frombuffer(payload, np.uint8)
    data.flags.writeable = False
    facts = np.empty(len(F), np.int64)
    status = kernel.walk(data, 0, data.size, count, base_timestamp, facts)
    found = RecordFacts(*facts.tolist())
    if status:
        raise _fault(Walk(status), found.records, count)
    return found


def find_timestamp(
    payload: memoryview, count: int, base_timestamp: int, wanted: int, lowest_delta: int
) -> tuple[int, int] | None:
    """(timestamp, offset delta) of the first record with a timestamp of at least `wanted` ms and an offset delta of at
    least `lowest_delta`; None when there is none. Raises CorruptBatch."""
    kernel = _kernel_for(count)
    if kernel is None:
        for record in plain_records(payload, count, base_timestamp):
            if record.timestamp >= wanted and record.offset_delta >= lowest_delta:
                return record.timestamp, record.offset_delta
        return None
    data = np.frombuffer(payload, np.uint8)
    data.flags.writeable = False
    found = np.empty(2, np.int64)
    status = kernel.find_timestamp(data, 0, data.size, count, base_timestamp, wanted, lowest_delta, found)
    if status < 0:
        raise CorruptBatch("a record is malformed")
    return (int(found[0]), int(found[1])) if status else None


def plain_records(payload: memoryview, count: int, base_timestamp: int) -> Iterator[RecordView]:
    """The records one by one, without the compiler. Raises CorruptBatch behind the last one that is right."""
    end = len(payload)
    at = 0
    for index in range(count):
        start = at
        try:
            size, body = _varint(payload, at, end)
        except IndexError:
            raise _fault(Walk.TOO_FEW, index, count) from None
        if size < 0:
            raise _fault(Walk.BAD_LENGTH, index, count)
        if size > end - body:
            raise _fault(Walk.TOO_FEW, index, count)
        at = body + size
        try:
            timestamp_delta, delta_at = _varint(payload, body + 1, at)
            delta, delta_end = _varint(payload, delta_at, at)
            key_size, cur = _varint(payload, delta_end, at)
            value_size, cur = _varint(payload, cur + key_size if key_size > 0 else cur, at)
            headers, cur = _varint(payload, cur + value_size if value_size > 0 else cur, at)
            if headers:
                cur = _behind_headers(payload, cur, at, headers)
        except IndexError:
            raise _fault(Walk.BAD_RECORD, index, count) from None
        if cur != at:
            raise _fault(Walk.BAD_RECORD, index, count)
        timestamp = base_timestamp + timestamp_delta
        if not -(2**63) <= timestamp < 2**63:  # wraps around, as in Java
            timestamp = (timestamp + 2**63) % 2**64 - 2**63
        yield RecordView(index, start, body, delta_at, delta_end, at, timestamp, delta, key_size >= 0)
    if at != end:
        raise _fault(Walk.TOO_MANY, count, count)


def _plain_facts(payload: memoryview, count: int, base_timestamp: int) -> RecordFacts:
    max_timestamp, max_index, low, high, in_sequence, null_keys = -1, -1, 2**63 - 1, -(2**63), 1, 0
    for record in plain_records(payload, count, base_timestamp):
        timestamp = record.timestamp
        if timestamp > max_timestamp:
            max_timestamp, max_index = timestamp, record.place
        if timestamp != -1:
            low, high = min(low, timestamp), max(high, timestamp)
        if record.offset_delta != record.place:
            in_sequence = 0
        null_keys += not record.has_key
    return RecordFacts(count, len(payload), max_timestamp, max_index, low, high, in_sequence, null_keys)


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """(value, position behind it) of a zigzag varint in data[at:end]; IndexError when it does not end there."""
    if at >= end:
        raise IndexError
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    value = byte & 0x7F
    shift = 7
    while True:
        if at >= end or shift > 63:
            raise IndexError
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    value &= 2**64 - 1
    value = (value >> 1) ^ -(value & 1)
    return value, at


def _behind_headers(data: memoryview, at: int, end: int, headers: int) -> int:
    if not 0 <= headers <= end - at:
        raise IndexError
    for _ in range(headers):
        size, at = _varint(data, at, end)
        if size < 0:
            raise IndexError
        size, at = _varint(data, at + size, end)
        if size > 0:
            at += size
    return at


def _fault(walk: Walk, index: int, count: int) -> CorruptBatch:
    return CorruptBatch(_FAULTS[walk].format(index=index, count=count))
