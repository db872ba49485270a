"""A v2 batch as the bytes that go into a segment, with the facts that an append needs. No kernels are loaded for it.

`EncodedBatch` comes from record_encoder (Arrow columns), from `control_batch` (transaction markers), or from
`batches_of` (bytes that a producer sent or a log holds).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.log.format import control_record, layout
from kafkalog_spark.log.format.batch_header import HEADER_SIZES, PREFIX_SIZE, parse_header, parse_prefix
from kafkalog_spark.log.format.checksum import crc32c
from kafkalog_spark.log.format.layout import ControlType

_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_U32 = struct.Struct(">I")
_MAGIC = 2


class EncodedBatch(NamedTuple):
    """One whole batch of any format. `max_timestamp` in ms; `leader_epoch` -1 in formats without one;
    `record_count` -1 of a wrapper, which has to be opened to know."""

    data: bytes
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int
    record_count: int


def seal(buffer: bytearray | memoryview, start: int, end: int, fields: tuple[int, ...]) -> None:
    """Write the header of the batch in buffer[start:end], whose records are there already, with length and CRC.

    fields: BATCH_HEADER's, with anything in place of batchLength and crc.
    """
    layout.BATCH_HEADER.pack_into(buffer, start, fields[0], end - start - layout.LOG_OVERHEAD, *fields[2:])
    with memoryview(buffer) as view:
        crc = crc32c(view[start + layout.ATTRIBUTES_AT : end])
    _U32.pack_into(buffer, start + layout.CRC_AT, crc)


def header_fields(
    base_offset: int,
    last_offset: int,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    *,
    attributes: int,
    leader_epoch: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> tuple[int, ...]:
    """BATCH_HEADER's fields in order, length and CRC left 0 for `seal`."""
    return (
        base_offset, 0, leader_epoch, _MAGIC, 0, attributes, last_offset - base_offset, base_timestamp, max_timestamp,
        producer_id, producer_epoch, base_sequence, count,
    )  # fmt: skip


def control_batch(
    control_type: ControlType,
    offset: int,
    timestamp: int,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    leader_epoch: int = 0,
) -> EncodedBatch:
    """The marker (COMMIT or ABORT) that ends a transaction, as MemoryRecords.withEndTransactionMarker writes it.

    `timestamp` in ms.
    """
    if control_type not in control_record.TRANSACTION_ENDS:
        raise ValueError(f"a transaction ends with ABORT or COMMIT, got {control_type!r}")
    key = control_record.KEY.pack(control_record.VERSION, control_type)
    value = control_record.VALUE.pack(control_record.VERSION, coordinator_epoch)
    # attributes, timestamp delta and offset delta 0; all lengths are below 64, so each is one byte, doubled by zigzag
    fields = bytes((0, 0, 0, 2 * len(key))) + key + bytes((2 * len(value),)) + value + bytes((0,))
    record = bytes((2 * len(fields),)) + fields
    data = bytearray(layout.BATCH_OVERHEAD) + record
    attributes = layout.ATTRIBUTE_TRANSACTIONAL | layout.ATTRIBUTE_CONTROL
    head = header_fields(
        offset, offset, 1, timestamp, timestamp, attributes=attributes, leader_epoch=leader_epoch,
        producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=layout.NO_SEQUENCE,
    )  # fmt: skip
    seal(data, 0, len(data), head)
    return EncodedBatch(bytes(data), offset, offset, timestamp, leader_epoch, 1)


def restamp(batch: bytes | bytearray | memoryview, base_offset: int, leader_epoch: int) -> bytes:
    """A copy of a v2 batch with another base offset and leader epoch. Both lie outside the CRC, which stays valid."""
    data = bytearray(batch)
    _I64.pack_into(data, layout.OFFSET_AT, base_offset)
    _I32.pack_into(data, layout.LEADER_EPOCH_AT, leader_epoch)
    return bytes(data)


def batches_of(data: bytes | memoryview) -> Iterator[EncodedBatch]:
    """The batches (v2, or messages and wrappers v0 and v1) that `data` holds one after the other.

    Only headers are read: neither CRCs nor records. Raises CorruptBatch, with the byte position in `data`, for a batch
    that is cut short or announces an impossible length; UnsupportedFormat for an unknown magic.
    """
    view = memoryview(data)
    at = 0
    while at < len(view):
        left = len(view) - at
        if left < PREFIX_SIZE:
            raise CorruptBatch(f"{left} bytes are left, too few for a batch", position=at)
        size, magic = parse_prefix(view, at, at)
        if size > left or left < HEADER_SIZES[magic]:
            raise CorruptBatch(f"a batch of {size} bytes begins with {left} bytes left", position=at)
        header = parse_header(view, at, at)
        yield EncodedBatch(
            bytes(view[at : at + size]), header.base_offset, header.last_offset, header.max_timestamp,
            header.leader_epoch, header.record_count,
        )  # fmt: skip
        at += size
