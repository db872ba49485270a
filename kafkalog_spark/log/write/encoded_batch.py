"""Encoded batches with parsed headers, and builders of small batches and transaction markers.

The code is plain Python and loads no kernels. For many records use record_encoder.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

from kafkalog_spark.format import control_record, layout
from kafkalog_spark.format.batch_header import BatchHeader, parse_complete_batch_prefix, parse_header
from kafkalog_spark.format.crc32c import crc32c
from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.format.records import write_record

_U32 = struct.Struct(">I")
_MAGIC = 2


class EncodedBatch(NamedTuple):
    """Bytes and parsed header of one batch of any magic.

    Attributes:
        data: The whole batch; a bytearray if a log will write offsets and leader epoch into it.
        header: Parsed header. Its `position` is the position of the batch in the bytes from which it was parsed.
    """

    data: bytes
    header: BatchHeader

    @classmethod
    def of(cls, data: bytes | bytearray) -> EncodedBatch:
        """Parse the header of the batch in `data`.

        Raises:
            CorruptBatch: If the header is invalid.
            UnsupportedFormat: If the magic is unknown.
        """
        return cls(cast(bytes, data), parse_header(memoryview(data), 0, 0))


class EncodedRecords:
    """Encoded records of one batch, after space for the header.

    Args:
        records: The first records, as pairs of key and value.

    Attributes:
        data: Space for the header, then the encoded records.
    """

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
    """Write the header of a batch, including length and CRC, before its records.

    Args:
        buffer: Contains the batch in `buffer[start:end]`, with the records already encoded.
        start: Position of the header.
        end: End of the records.
        fields: Fields of `layout.BATCH_HEADER` in order. The values for batchLength and crc are ignored.
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
    """Return the fields of `layout.BATCH_HEADER` in order, with 0 for the length and the CRC, which `seal` computes."""
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
    """Return an uncompressed v2 batch of a few records, such as those of a coordinator.

    Args:
        records: Pairs of key and value. The buffer of `EncodedRecords` is used without a copy, so do not use it again.
        timestamp: Timestamp of every record in ms.

    Raises:
        ValueError: If there are no records.
    """
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
    """Return the COMMIT or ABORT marker of a transaction (Kafka: MemoryRecords.withEndTransactionMarker).

    Args:
        control_type: COMMIT or ABORT.
        offset: Offset of the marker.
        timestamp: Timestamp of the marker in ms.

    Raises:
        ValueError: If `control_type` does not end a transaction.
    """
    if control_type not in control_record.TRANSACTION_ENDS:
        raise ValueError(f"a transaction ends with ABORT or COMMIT, got {control_type!r}")
    key = control_record.KEY.pack(control_record.VERSION, control_type)
    value = control_record.VALUE.pack(control_record.VERSION, coordinator_epoch)
    return build_batch(
        [(key, value)], timestamp, base_offset=offset, producer_id=producer_id, producer_epoch=producer_epoch,
        leader_epoch=leader_epoch, attributes=layout.ATTRIBUTE_TRANSACTIONAL | layout.ATTRIBUTE_CONTROL,
    )  # fmt: skip


def split_batches(data: bytes | memoryview) -> Iterator[EncodedBatch]:
    """Yield the consecutive batches in `data`, which may be v2 batches or v0 and v1 messages and wrappers.

    Only the headers are parsed; CRCs and records are not checked.

    Raises:
        CorruptBatch: If a batch is truncated or its length is invalid; with the byte position in `data`.
        UnsupportedFormat: If a batch has an unknown magic.
    """
    view = memoryview(data)
    position = 0
    while position < len(view):
        size, _ = parse_complete_batch_prefix(view, position, len(view) - position, position)
        yield EncodedBatch(bytes(view[position : position + size]), parse_header(view, position, position))
        position += size
