"""Record batches of the internal topics of coordinators, encoded and decoded in plain Python.

These batches hold a few small records. Importing the Numba kernels of `kafkalog_spark.log`, which decode millions of
records, would take more time and memory than they could save here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kafkalog_broker.coordinator.coordinator_record import ProducerIdAndEpoch, Record
from kafkalog_broker.storage.append.decompression import decompress_records
from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import BatchHeader, check_crc
from kafkalog_spark.format.control_record import control_type
from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.format.records import RecordView, read_records
from kafkalog_spark.log.write.encoded_batch import EncodedRecords, build_batch, split_batches

_log = logging.getLogger(__name__)

_BASE_SEQUENCE = 0  # Kafka's CoordinatorRuntime writes 0 although these batches have no sequence numbers


@dataclass(frozen=True, slots=True)
class CoordinatorBatch:
    """A decoded batch. A marker that ends a transaction has a control type and no records."""

    base_offset: int
    producer_id: int
    is_transactional: bool
    control: ControlType | None
    records: list[Record]


def encode_batch(
    records: Sequence[Record] | EncodedRecords,
    timestamp_ms: int,
    *,
    base_offset: int = 0,
    leader_epoch: int = 0,
    transaction: ProducerIdAndEpoch | None = None,
) -> bytes:
    """Encode records as one batch, which belongs to the open transaction of `transaction` if that is not None."""
    producer_id, epoch = transaction or (layout.NO_PRODUCER_ID, layout.NO_PRODUCER_EPOCH)
    return build_batch(
        records, timestamp_ms, base_offset=base_offset, leader_epoch=leader_epoch,
        attributes=0 if transaction is None else layout.ATTRIBUTE_TRANSACTIONAL, producer_id=producer_id,
        producer_epoch=epoch, base_sequence=_BASE_SEQUENCE,
    ).data  # fmt: skip


def decode_batches(chunks: Iterable[bytes | memoryview]) -> Iterator[CoordinatorBatch]:
    """Decode `chunks`, each of which holds whole v2 batches. Records without a key are logged and skipped.

    Raises:
        CorruptBatch: If a batch is damaged or of another format version.
    """
    for chunk in chunks:
        for data, header in split_batches(chunk):
            if header.magic != 2:
                raise CorruptBatch(f"a batch of format v{header.magic}, expected v2", offset=header.base_offset)
            check_crc(header, data)
            is_marker = header.is_control and header.record_count > 0  # the cleaner leaves empty control batches
            control = ControlType(control_type(data)) if is_marker else None
            records = [] if header.is_control or not header.record_count else _keyed_records(header, data)
            yield CoordinatorBatch(header.base_offset, header.producer_id, header.is_transactional, control, records)


def record_values(chunks: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Yield the values of records that have no keys. Each chunk holds whole v2 batches.

    Raises:
        CorruptBatch: If a batch is damaged.
    """
    for chunk in chunks:
        for data, header in split_batches(chunk):
            check_crc(header, data)
            if not header.is_control and header.record_count:
                payload, views = _read_records(header, data)
                yield from (
                    bytes(payload[view.value_at : view.value_at + view.value_size])
                    for view in views
                    if view.value_size >= 0
                )


def _keyed_records(header: BatchHeader, data: bytes) -> list[Record]:
    payload, views = _read_records(header, data)
    with_key = [view for view in views if view.key_size >= 0]
    if len(with_key) < len(views):
        # One invalid record must not make the other groups or transactions of the partition unavailable.
        _log.error(
            "%d of the %d records at offset %d have no key and are skipped: no coordinator has written them",
            len(views) - len(with_key), len(views), header.base_offset,
        )  # fmt: skip
    return [
        (
            bytes(payload[view.key_at : view.key_at + view.key_size]),
            None if view.value_size < 0 else bytes(payload[view.value_at : view.value_at + view.value_size]),
        )
        for view in with_key
    ]


def _read_records(header: BatchHeader, data: bytes) -> tuple[memoryview, list[RecordView]]:
    payload = memoryview(data)[layout.RECORDS_AT :]
    if header.codec:
        payload = memoryview(bytes(decompress_records(header.codec, payload)))
    try:
        return payload, list(read_records(payload, header.record_count, header.base_timestamp))
    except CorruptBatch as error:
        raise error.at(offset=header.base_offset) from None
