"""Batches one by one, from Arrow columns: what the encoder gives a run at a time. And what it never makes: batches of a
producer, and the same batch at another place."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from kafkalog_spark.format import layout
from kafkalog_spark.log.write.encoded_batch import EncodedBatch, seal, split_batches
from kafkalog_spark.log.write.record_encoder import BatchParams, RecordEncoder


def encode_batches(
    records: pa.RecordBatch | pa.Table, next_offset: int, params: BatchParams, now_ms: int | None = None
) -> Iterator[EncodedBatch]:
    for run in RecordEncoder(params).runs(records, next_offset, now_ms):
        yield from split_batches(run.data)


def of_producer(
    batch: EncodedBatch, producer_id: int, epoch: int, base_sequence: int, *, transactional: bool = True
) -> EncodedBatch:
    data = bytearray(batch.data)
    fields = list(layout.BATCH_HEADER.unpack_from(data))
    fields[5] |= layout.ATTRIBUTE_TRANSACTIONAL if transactional else 0
    fields[9:12] = producer_id, epoch, base_sequence
    seal(data, 0, len(data), tuple(fields))
    return EncodedBatch.of(bytes(data))


def restamped(batch: EncodedBatch, base_offset: int) -> EncodedBatch:
    return EncodedBatch.of(base_offset.to_bytes(8, "big") + batch.data[8:])
