"""Limits on the work of validating one batch, for the event loop and for worker threads.

Handing a batch to a thread and back takes longer than validating a batch of usual size. Therefore a batch goes to a
thread only if its validation may take longer than about 2 ms. Of the sizes in the batch header only the record count
is used, because validation reads no more records than that.

The limits rest on measurements with `benchmarks/broker.py`: the throughput of each codec, and the time per record and
per record header.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from kafkalog_spark.format import layout
from kafkalog_spark.format.codecs import CODECS, KAFKA_CODECS
from kafkalog_spark.format.layout import MAX_DECOMPRESSED, Codec

MAX_RECORDS = 1_000_000
"""Largest number of records in a batch. Kafka has no such limit, but a record takes as few as seven bytes, so a small
request could contain very many. librdkafka sends no larger batches (batch.num.messages)."""
MAX_PIECES = 10_000
"""Largest number of blocks or members in a compressed batch. Each takes some time in Python even if it is tiny, and all
other threads wait meanwhile. Clients send blocks of at least 32 KB; Java's before 1.0 sent snappy blocks of 1 KB."""
LOOP_RECORDS = 50_000
"""Largest number of records in a batch that the event loop validates."""
_USUAL_RATIO = 4
"""Expected ratio of decompressed to compressed bytes."""

_I32 = struct.Struct(">i")


class TakesTooLong(Exception):
    """The event loop must not validate this batch; a worker thread has to. The batch may be valid."""


class ValidationBudget(NamedTuple):
    """Limits on one validation. Above a limit, the event loop raises TakesTooLong and a thread refuses the batch.

    Attributes:
        decompressed_bytes: Largest size of the decompressed records.
        pieces: Largest number of blocks or members in the compressed records.
        recompressed_bytes: Largest size of records to compress again, which is much slower than decompression.
        in_event_loop: True for the event loop, which does not wait for compiled kernels to be loaded either.
    """

    decompressed_bytes: int
    pieces: int
    recompressed_bytes: int
    in_event_loop: bool


THREAD_BUDGET = ValidationBudget(MAX_DECOMPRESSED, MAX_PIECES, layout.MAX_INT32, in_event_loop=False)


def _event_loop_budget_of(decompressed_bytes: int) -> ValidationBudget:
    return ValidationBudget(decompressed_bytes, pieces=200, recompressed_bytes=64 << 10, in_event_loop=True)


LOOP_BUDGETS: Mapping[int, ValidationBudget] = {
    codec: _event_loop_budget_of(CODECS[codec].bytes_in_event_loop) for codec in KAFKA_CODECS
}
"""Budget of the event loop, by codec."""
_UNCOMPRESSED = LOOP_BUDGETS[Codec.NONE]


def event_loop_budget(batch: memoryview) -> ValidationBudget | None:
    """Return the event loop's budget for a v2 batch; None if a worker thread must validate it.

    A batch with an unknown codec gets the budget of an uncompressed one, because it is refused before its records are
    read.
    """
    size = len(batch)
    if size < layout.RECORDS_AT:
        return _UNCOMPRESSED
    codec = batch[layout.ATTRIBUTES_AT + 1] & layout.ATTRIBUTE_CODEC
    if not codec and size <= LOOP_RECORDS:  # a record has more than one byte, so the count is lower
        return _UNCOMPRESSED
    budget = LOOP_BUDGETS.get(codec, _UNCOMPRESSED)
    (count,) = _I32.unpack_from(batch, layout.RECORD_COUNT_AT)
    expected = size * _USUAL_RATIO if codec else size
    return budget if expected <= budget.decompressed_bytes and count <= LOOP_RECORDS else None
