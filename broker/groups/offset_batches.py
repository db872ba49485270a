"""Record batches of __consumer_offsets: a few small records, written and read in plain Python.

The kernels of kafkalog_spark.log are for millions of records; loading them costs more time and memory than a
coordinator's records ever do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.log import layout
from kafkalog_spark.log.batch_header import BatchHeader, check_crc, control_type, parse_header
from kafkalog_spark.log.decompress import Output, decompress
from kafkalog_spark.log.encoded_batch import batches_of, header_fields, seal
from kafkalog_spark.log.layout import ControlType
from kafkalog_spark.log.scratch import Scratch

Record = tuple[bytes, bytes | None]
"""Key, and value or None for a tombstone."""

_NO_PRODUCER = -1
_BASE_SEQUENCE = 0  # Kafka's CoordinatorRuntime gives its batches 0 although no producer counts them
_MAX_UNFOLDED_BYTES = 512 * 1024 * 1024  # far more than a coordinator writes into one batch


class ProducerEpoch(NamedTuple):
    """Whose transaction a batch belongs to."""

    producer_id: int
    epoch: int


def encode_batch(
    records: Sequence[Record],
    timestamp_ms: int,
    *,
    base_offset: int = 0,
    leader_epoch: int = 0,
    transaction: ProducerEpoch | None = None,
) -> bytes:
    """One uncompressed v2 batch whose records all have `timestamp_ms`. `records` must not be empty.

    transaction: the batch is part of that producer's open transaction.
    """
    data = bytearray(layout.BATCH_OVERHEAD)
    for delta, (key, value) in enumerate(records):
        body = bytearray(b"\0\0")  # attributes, timestamp delta
        body += _varint(delta)
        body += _varint(len(key))
        body += key
        if value is None:
            body += _varint(-1)
        else:
            body += _varint(len(value))
            body += value
        body.append(0)  # no headers
        data += _varint(len(body))
        data += body
    fields = header_fields(
        base_offset, base_offset + len(records) - 1, len(records), timestamp_ms, timestamp_ms,
        attributes=0 if transaction is None else layout.ATTRIBUTE_TRANSACTIONAL, leader_epoch=leader_epoch,
        producer_id=_NO_PRODUCER if transaction is None else transaction.producer_id,
        producer_epoch=-1 if transaction is None else transaction.epoch, base_sequence=_BASE_SEQUENCE,
    )  # fmt: skip
    seal(data, 0, len(data), fields)
    return bytes(data)


@dataclass(frozen=True, slots=True)
class OffsetsBatch:
    """A batch that has been read. A marker that ends a transaction has a control type and no records."""

    base_offset: int
    producer_id: int
    is_transactional: bool
    control: ControlType | None
    records: list[Record]


def decode_batches(chunks: Iterable[bytes | memoryview]) -> Iterator[OffsetsBatch]:
    """The batches in `chunks`, each of which holds whole v2 batches. Raises CorruptBatch for damage."""
    for chunk in chunks:
        for encoded in batches_of(chunk):
            header = parse_header(encoded.data, 0, 0)
            if header.magic != 2:
                raise CorruptBatch(f"a batch of format v{header.magic}, expected v2", offset=header.base_offset)
            check_crc(header, encoded.data)
            yield _decode(header, encoded.data)


def _decode(header: BatchHeader, data: bytes) -> OffsetsBatch:
    control = None
    records: list[Record] = []
    if header.is_control:
        if header.record_count > 0:  # the cleaner leaves empty ones
            control = ControlType(control_type(data))
    else:
        records = _records(header, data)
    return OffsetsBatch(header.base_offset, header.producer_id, header.is_transactional, control, records)


def _records(header: BatchHeader, data: bytes) -> list[Record]:
    at = layout.RECORDS_AT
    if header.codec:
        scratch = Scratch()
        end = decompress(header.codec, memoryview(data)[at:], Output(scratch, 0, _MAX_UNFOLDED_BYTES))
        data, at = bytes(scratch.room(0, end)), 0
    records: list[Record] = []
    try:
        for _ in range(header.record_count):
            size, at = _read_varint(data, at)
            end = at + size
            at += 1  # attributes
            _, at = _read_varint(data, at)  # timestamp delta
            _, at = _read_varint(data, at)  # offset delta
            length, at = _read_varint(data, at)
            key = data[at : at + max(length, 0)]
            at += len(key)
            length, at = _read_varint(data, at)
            value = None if length < 0 else data[at : at + length]
            if size < 0 or end > len(data) or at + max(length, 0) > end:
                raise CorruptBatch("a record reaches beyond its end", offset=header.base_offset)
            records.append((key, value))
            at = end
    except IndexError:
        raise CorruptBatch("its records end too early", offset=header.base_offset) from None
    return records


def _varint(value: int) -> bytes:
    number = (value << 1) ^ (value >> 63)  # zigzag
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    number, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
        if shift > 63:
            raise CorruptBatch("a varint of more than 9 bytes")
