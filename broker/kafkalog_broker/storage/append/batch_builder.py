"""Batches that the broker itself appends, and their headers as what an append needs."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalog_broker.storage.append.append_validation import ValidatedBatch
from kafkalog_spark.log.format import layout
from kafkalog_spark.log.format.records import write_record
from kafkalog_spark.log.write.encoded_batch import header_fields, seal


def build_batch(records: Sequence[tuple[bytes | None, bytes | None]], timestamp: int) -> ValidatedBatch:
    """An uncompressed batch of (key, value) records, all with `timestamp` (ms).

    In plain Python: for the few records of coordinators, 3 us each. Raises ValueError without records.
    """
    if not records:
        raise ValueError("a batch has at least one record")
    body = bytearray(layout.BATCH_OVERHEAD)
    for delta, (key, value) in enumerate(records):
        write_record(body, delta, key, value)
    head = header_fields(
        0, len(records) - 1, len(records), timestamp, timestamp, attributes=0, leader_epoch=layout.NO_LEADER_EPOCH,
        producer_id=layout.NO_PRODUCER_ID, producer_epoch=layout.NO_PRODUCER_EPOCH, base_sequence=layout.NO_SEQUENCE,
    )  # fmt: skip
    seal(body, 0, len(body), head)
    return parsed_batch(body)


def parsed_batch(data: bytes | bytearray | memoryview) -> ValidatedBatch:
    """A batch that is known to be right, in memory of its own."""
    batch = data if isinstance(data, bytearray) else bytearray(data)
    (
        _, _, _, _, _, attributes, last_delta, _, max_timestamp, producer_id, producer_epoch, base_sequence, _,
    ) = layout.BATCH_HEADER.unpack_from(batch)  # fmt: skip
    return ValidatedBatch(
        batch, last_delta + 1, max_timestamp, producer_id, producer_epoch, base_sequence, attributes,
        max_timestamp if attributes & layout.ATTRIBUTE_LOG_APPEND_TIME else -1,
    )  # fmt: skip
