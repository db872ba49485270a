"""A batch as the bytes that go into a segment, with its header: of few records, a transaction marker, or bytes that a
producer sent. No kernels are loaded; many records are for record_encoder."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

from kafkalog_spark.format import control_record, layout
from kafkalog_spark.format.batch_header import BatchHeader, parse_header, whole_batch
from kafkalog_spark.format.crc32c import crc32c
from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.format.records import write_record

_U32 = struct.Struct(">I")
_MAGIC = 2


class EncodedBatch(NamedTuple):
    """A record batch of any magic. data: a bytearray where a log stamps it. header: with its position at the source."""

    data: bytes
    header: BatchHeader

    @classmethod
    def of(cls, data: bytes | bytearray) -> EncodedBatch:
        """Raises CorruptBatch, UnsupportedFormat."""
        return cls(cast(bytes, data), parse_header(memoryview(data), 0, 0))


class EncodedRecords:
    """The records of one batch, encoded as they are added. `data` begins with room for the header."""

    def __init__(self, records: Sequence[tuple[bytes | None, bytes | None]] = ()) -> None:
        self.data = bytearray(layout.BATCH_OVERHEAD)
        self._count = 0
        for key, value in records:
            self.add(key, value)

    def add(self, key: bytes | None, value: bytes | None) -> None:
        write_record(self.data, self._count, key, value)
        self._count += 1

    def __len__(self) -> int:
        return self._count


def seal(buffer: bytearray | memoryview, start: int, end: int, fields: tuple[int, ...]) -> None:
    """Write the header of the batch in buffer[start:end], whose records are there already, with length and CRC. fields:
    BATCH_HEADER's, with anything in place of batchLength and crc."""
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


def build_batch(
    records: Sequence[tuple[bytes | None, bytes | None]] | EncodedRecords,
    timestamp: int,
    *,
    base_offset: int = 0,
    attributes: int = 0,
    leader_epoch: int = 0,
    producer_id: int = layout.NO_PRODUCER_ID,
    producer_epoch: int = layout.NO_PRODUCER_EPOCH,
    base_sequence: int = layout.NO_SEQUENCE,
) -> EncodedBatch:
    """An uncompressed batch of (key, value) records, all with `timestamp` (ms); of encoded ones the memory becomes the
    batch's. In plain Python: for the few records of coordinators, 3 us each. Raises ValueError without records."""
    if not len(records):
        raise ValueError("a batch has at least one record")
    encoded = records if isinstance(records, EncodedRecords) else EncodedRecords(records)
    data, count = encoded.data, len(encoded)
    fields = header_fields(
        base_offset, base_offset + count - 1, count, timestamp, timestamp, attributes=attributes,
        leader_epoch=leader_epoch, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence,
    )  # fmt: skip
    seal(data, 0, len(data), fields)
    return EncodedBatch.of(data)


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
    """The COMMIT or ABORT marker of a transaction, as MemoryRecords.withEndTransactionMarker makes it. Time in ms."""
    if control_type not in control_record.TRANSACTION_ENDS:
        raise ValueError(f"a transaction ends with ABORT or COMMIT, got {control_type!r}")
    key = control_record.KEY.pack(control_record.VERSION, control_type)
    value = control_record.VALUE.pack(control_record.VERSION, coordinator_epoch)
    return build_batch(
        [(key, value)], timestamp, base_offset=offset, producer_id=producer_id, producer_epoch=producer_epoch,
        leader_epoch=leader_epoch, attributes=layout.ATTRIBUTE_TRANSACTIONAL | layout.ATTRIBUTE_CONTROL,
    )  # fmt: skip


def batches_of(data: bytes | memoryview) -> Iterator[EncodedBatch]:
    """The batches (v2, or messages and wrappers v0 and v1) that `data` holds one after the other, by their headers:
    neither CRCs nor records are read. Raises CorruptBatch, with the byte position in `data`, for a batch that is cut
    short or announces an impossible length; UnsupportedFormat for an unknown magic."""
    view = memoryview(data)
    at = 0
    while at < len(view):
        size, _ = whole_batch(view, at, len(view) - at, at)
        yield EncodedBatch(bytes(view[at : at + size]), parse_header(view, at, at))
        at += size
