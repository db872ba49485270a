"""How much work the validation of one batch may be: in the event loop, and in a worker thread.

A hand-over to a thread and back takes 0.1 ms, and several ms while both threads want the interpreter; validating a
batch of the usual size takes less. So a batch goes to a thread only if its validation may take longer than about 2 ms.
Of what a batch announces only the number of records is believed, because no more records than that are read.

The limits rest on measurements on one core (`benchmarks/broker.py`): gzip decompresses 0.2 to 0.65 GB/s, zstd 0.5 to
1.4, snappy and lz4 1 to 12. Reading a record takes 10 to 20 ns, twice that if records are refused or renumbered; a
header of a record takes 3 ns, and one megabyte has room for half a million of them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from kafkalog_spark.format import layout
from kafkalog_spark.format.codecs import CODECS
from kafkalog_spark.format.layout import MAX_DECOMPRESSED, Codec

MAX_RECORDS = 1_000_000
"""Records of one batch, a limit that Kafka does not have. librdkafka sends no larger batches (batch.num.messages), nor
does Java's producer with 64 MB of records of 67 bytes and more. Seven bytes are enough for a record, so 64 MB would
hold 9.5 million."""
MAX_PIECES = 10_000
"""Blocks or members of a compressed batch. Clients fill blocks of 32 KB and more, Java's before 1.0 of 1 KB (snappy).
However small it is, each takes a microsecond or two of Python, during which all other threads wait."""
LOOP_RECORDS = 50_000
"""Records of a batch that the event loop validates."""
_USUAL_RATIO = 4
"""Expected ratio of decompressed to compressed bytes."""

_I32 = struct.Struct(">i")


class TakesTooLong(Exception):
    """Raised in the event loop for a batch that has to be validated in a thread; it may well be valid."""


class ValidationBudget(NamedTuple):
    """Most work of one validation. In a thread a batch above a limit is invalid, in the event loop it TakesTooLong.

    Attributes:
        decompressed_bytes: Bytes of decompressed records.
        pieces: Blocks or members of the compressed records: gzip takes up to 10 us for each, the others 1 to 2.
        recompressed_bytes: Bytes of records that are compressed again, which takes ten times as long as decompression.
        in_event_loop: True for the event loop. It does not wait for compiled kernels to be loaded either.
    """

    decompressed_bytes: int
    pieces: int
    recompressed_bytes: int
    in_event_loop: bool


THREAD_BUDGET = ValidationBudget(MAX_DECOMPRESSED, MAX_PIECES, layout.MAX_INT32, in_event_loop=False)


def _loop_budget(decompressed_bytes: int) -> ValidationBudget:
    return ValidationBudget(decompressed_bytes, pieces=200, recompressed_bytes=64 << 10, in_event_loop=True)


LOOP_BUDGETS: Mapping[int, ValidationBudget] = {
    codec: _loop_budget(facts.bytes_in_event_loop) for codec, facts in CODECS.items()
}
"""Budget of the event loop by codec."""
_UNCOMPRESSED = LOOP_BUDGETS[Codec.NONE]


def loop_budget(batch: memoryview) -> ValidationBudget | None:
    """Return the budget of the event loop for a v2 batch, or None if a thread has to validate it.

    An unknown codec gets the budget of an uncompressed batch: it is refused before its records are read.
    """
    size = len(batch)
    if size < layout.RECORDS_AT:
        return _UNCOMPRESSED
    codec = batch[layout.ATTRIBUTES_AT + 1] & layout.ATTRIBUTE_CODEC
    if not codec and size <= LOOP_RECORDS:  # no room for more records, whatever the header announces
        return _UNCOMPRESSED
    budget = LOOP_BUDGETS.get(codec, _UNCOMPRESSED)
    (count,) = _I32.unpack_from(batch, layout.RECORD_COUNT_AT)
    expected = size * _USUAL_RATIO if codec else size
    return budget if expected <= budget.decompressed_bytes and count <= LOOP_RECORDS else None
