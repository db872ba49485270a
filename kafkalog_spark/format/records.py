"""Read and write the records of one v2 batch in plain Python. It is meant for few records; use kernels for many.

The rules for reading are those of Java's DefaultRecord.readFrom, which `kernels.record_fields` implements as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format.layout import FaultCode
from kafkalog_spark.format.varints import read_varint, read_varlong, write_varint


class RecordFault(FaultCode):
    """What is wrong with a record."""

    NONE = 0
    TOO_FEW = 1, "the records end early: {index} of {count} are whole"
    BAD_LENGTH = 2, "record {index} has a negative length"
    BAD_RECORD = 3, "record {index} is malformed"
    TOO_MANY = 4, "bytes are left after the {count} records that the header announces"


class ManyHeaders(Exception):
    """The records have more headers than the caller allows to be parsed in plain Python."""


class RecordView(NamedTuple):
    """Positions of a record's fields in the payload. The size of null is negative."""

    number: int  # of the record in the batch, from 0
    body: int  # position after the length
    delta_at: int
    delta_end: int
    end: int
    timestamp: int  # ms, absolute
    offset_delta: int
    key_at: int
    key_size: int
    value_at: int
    value_size: int


_SHORT = [(byte >> 1) ^ -(byte & 1) for byte in range(0x80)]  # values of zigzag varints of one byte

_new = tuple.__new__  # faster than RecordView(...), with the same result


def fault(kind: RecordFault, index: int, count: int) -> CorruptBatch:
    return CorruptBatch(kind.text.format(index=index, count=count))


def read_records(
    payload: memoryview | bytes, count: int, base_timestamp: int, most_headers: int | None = None
) -> Iterator[RecordView]:
    """Yield the records of an uncompressed payload.

    Args:
        payload: Bytes of the records.
        count: Number of records.
        base_timestamp: Of the batch, in ms.
        most_headers: Largest total number of headers; None for any number.

    Raises:
        CorruptBatch: At the first malformed record, or if bytes are left after the last record.
        ManyHeaders: If the records have more than `most_headers` headers.
    """
    end = len(payload)
    at = headers_seen = 0
    for index in range(count):
        try:
            size, body = read_varint(payload, at, end)
        except IndexError:
            raise fault(RecordFault.TOO_FEW, index, count) from None
        if size < 0:
            raise fault(RecordFault.BAD_LENGTH, index, count)
        if size > end - body:
            raise fault(RecordFault.TOO_FEW, index, count)
        at = body + size
        try:
            # Most of these varints have one byte, and reading it is faster than a call. If the byte is past the end of
            # the record, the check of `cur` below fails.
            if (byte := payload[body + 1]) < 0x80:
                timestamp_delta, delta_at = _SHORT[byte], body + 2
            else:
                timestamp_delta, delta_at = read_varlong(payload, body + 1, at)
            if (byte := payload[delta_at]) < 0x80:
                delta, delta_end = _SHORT[byte], delta_at + 1
            else:
                delta, delta_end = read_varint(payload, delta_at, at)
            if (byte := payload[delta_end]) < 0x80:
                key_size, key_at = _SHORT[byte], delta_end + 1
            else:
                key_size, key_at = read_varint(payload, delta_end, at)
            value_size, value_at = read_varint(payload, key_at + key_size if key_size > 0 else key_at, at)
            cur = value_at + value_size if value_size > 0 else value_at
            if cur < at and payload[cur] == 0:  # no headers, the usual case
                cur += 1
            else:
                headers, cur = read_varint(payload, cur, at)
                headers_seen += headers
                if most_headers is not None and headers_seen > most_headers:
                    raise ManyHeaders
                cur = _after_headers(payload, cur, at, headers)
        except IndexError:
            raise fault(RecordFault.BAD_RECORD, index, count) from None
        if cur != at:
            raise fault(RecordFault.BAD_RECORD, index, count)
        timestamp = base_timestamp + timestamp_delta
        if not -(2**63) <= timestamp < 2**63:  # wraps around, as in Java
            timestamp = (timestamp + 2**63) % 2**64 - 2**63
        yield _new(
            RecordView,
            (index, body, delta_at, delta_end, at, timestamp, delta, key_at, key_size, value_at, value_size),
        )
    if at != end:
        raise fault(RecordFault.TOO_MANY, count, count)


def renumbered(payload: memoryview, count: int, base_timestamp: int) -> bytes:
    """Return the records with the offset deltas 0, 1, 2 and so on, otherwise unchanged. Raises CorruptBatch."""
    out = bytearray()
    for record in read_records(payload, count, base_timestamp):
        body = bytearray(payload[record.body : record.delta_at])
        write_varint(body, record.number)
        body += payload[record.delta_end : record.end]
        write_varint(out, len(body))
        out += body
    return bytes(out)


def write_record(out: bytearray, offset_delta: int, key: bytes | None, value: bytes | None) -> None:
    """Append a record without headers to `out`, with the base timestamp of the batch."""
    body = bytearray(b"\0\0")  # attributes, which are unused, and timestamp delta
    write_varint(body, offset_delta)
    for part in (key, value):
        if part is None:
            write_varint(body, -1)
        else:
            write_varint(body, len(part))
            body += part
    body.append(0)  # no headers
    write_varint(out, len(body))
    out += body


def _after_headers(data: memoryview | bytes, at: int, end: int, headers: int) -> int:
    if not 0 <= headers <= end - at:
        raise IndexError
    for _ in range(headers):
        size, at = read_varint(data, at, end)
        if size < 0:
            raise IndexError
        size, at = read_varint(data, at + size, end)
        if size > 0:
            at += size
    return at
