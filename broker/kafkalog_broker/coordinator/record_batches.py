"""Record batches of __consumer_offsets: a few small records, written and read in plain Python.

The kernels of kafkalog_spark.log are for millions of records; loading them costs more time and memory than a
coordinator's records ever do.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import BatchHeader, check_crc, control_type
from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.format.records import RecordView, read_records
from kafkalog_spark.log.decode.decompress import Output, decompress
from kafkalog_spark.log.decode.scratch import Scratch
from kafkalog_spark.log.write.encoded_batch import EncodedRecords, batches_of, build_batch

_logger = logging.getLogger(__name__)

Record = tuple[bytes, bytes | None]
"""Key, and value or None for a tombstone."""

TOMBSTONES_A_WRITE = 1_000
"""Some 100 KB a batch, far from message.max.bytes."""

_BASE_SEQUENCE = 0  # Kafka's CoordinatorRuntime gives its batches 0 although no producer counts them
_MAX_DECOMPRESSED_BYTES = 512 * 1024 * 1024  # far more than a coordinator writes into one batch


class ProducerEpoch(NamedTuple):
    """Whose transaction a batch belongs to."""

    producer_id: int
    epoch: int


def encode_batch(
    records: Sequence[Record] | EncodedRecords,
    timestamp_ms: int,
    *,
    base_offset: int = 0,
    leader_epoch: int = 0,
    transaction: ProducerEpoch | None = None,
) -> bytes:
    """As build_batch. transaction: the batch is part of that producer's open transaction."""
    producer_id, epoch = transaction or (layout.NO_PRODUCER_ID, layout.NO_PRODUCER_EPOCH)
    return build_batch(
        records, timestamp_ms, base_offset=base_offset, leader_epoch=leader_epoch,
        attributes=0 if transaction is None else layout.ATTRIBUTE_TRANSACTIONAL, producer_id=producer_id,
        producer_epoch=epoch, base_sequence=_BASE_SEQUENCE,
    ).data  # fmt: skip


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
        for data, header in batches_of(chunk):
            if header.magic != 2:
                raise CorruptBatch(f"a batch of format v{header.magic}, expected v2", offset=header.base_offset)
            check_crc(header, data)
            yield _decode(header, data)


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
    if not header.record_count:
        return []
    payload = memoryview(data)[layout.RECORDS_AT :]
    if header.codec:
        scratch = Scratch()
        end = decompress(header.codec, payload, Output(scratch, 0, _MAX_DECOMPRESSED_BYTES))
        payload = memoryview(bytes(scratch.room(0, end)))
    try:
        found = list(read_records(payload, header.record_count, header.base_timestamp))
    except CorruptBatch as error:
        raise error.at(offset=header.base_offset) from None
    with_key = [record for record in found if record.key_size >= 0]
    if len(with_key) < len(found):
        # No coordinator wrote it, but the rest of the partition is to be served all the same.
        _logger.error(
            "%d of the %d records at offset %d have no key, and are left out: they are no coordinator's",
            len(found) - len(with_key), len(found), header.base_offset,
        )  # fmt: skip
    return [_key_and_value(record, payload) for record in with_key]


def _key_and_value(record: RecordView, payload: memoryview) -> Record:
    value = payload[record.value_at : record.value_at + record.value_size]
    return (
        bytes(payload[record.key_at : record.key_at + record.key_size]),
        None if record.value_size < 0 else bytes(value),
    )
