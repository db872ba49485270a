"""Batches of the log in a slice that a share fetch reads: their headers, and which belong to aborted transactions."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from kafkalog_broker.share.acquisition import Span
from kafkalog_broker.storage.partition.file_handles import FileSlice
from kafkalog_spark.format import layout
from kafkalog_spark.format.control_record import control_type
from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.format.transaction_index import AbortedTransaction

_HEADER = struct.Struct(">qi4xb4xhi16xq")  # base offset, length, magic, attributes, last offset delta, producer ID
_LENGTH_FROM = 12  # size of the fields base offset and length, which are not part of the length
_WINDOW = 64 << 10  # bytes that are read at once, for the headers of many small batches
_LARGE_BATCH = 16 << 10  # after a larger batch only the next header is read
_V2 = 2


class LogBatch(NamedTuple):
    """A batch at byte `position` of a slice."""

    span: Span
    position: int
    size: int
    attributes: int
    producer_id: int


def read_log_batches(data: FileSlice, offset: int, until: int) -> list[LogBatch]:
    """Return the batches of a slice up to the one that contains the offset `until`. Only headers are read.

    Args:
        offset: First offset of interest; it is in the first batch.

    Raises:
        OSError: If the file cannot be read.
    """
    batches: list[LogBatch] = []
    window = b""
    window_at = 0
    position = 0
    previous_last = offset - 1
    read_size = _WINDOW
    while position + _LENGTH_FROM < data.size:
        at = position - window_at
        if at + _HEADER.size > len(window):
            window = data.handle.read(data.position + position, min(read_size, data.size - position))
            window_at = position
            at = 0
            if len(window) < _HEADER.size:
                break  # a message of format v0 or v1, which is shorter than the header of a v2 batch
        base, length, magic, attributes, delta, producer_id = _HEADER.unpack_from(window, at)
        if magic < _V2:  # message v0 or v1, whose header has the last offset of its records and not the first
            base, delta, attributes, producer_id = previous_last + 1, base - previous_last - 1, 0, layout.NO_PRODUCER_ID
        size = length + _LENGTH_FROM
        previous_last = base + delta
        batches.append(LogBatch(Span(base, previous_last), position, size, attributes, producer_id))
        if previous_last >= until:
            break
        position += size
        read_size = _HEADER.size if size > _LARGE_BATCH else _WINDOW
    return batches


def aborted_spans(
    data: FileSlice, batches: Sequence[LogBatch], transactions: Sequence[AbortedTransaction]
) -> list[Span]:
    """Return the offsets of the batches that belong to aborted transactions, in order.

    Raises:
        OSError: If the file cannot be read.
    """
    pending = sorted(transactions, key=lambda transaction: transaction.first_offset, reverse=True)
    aborted_producers: set[int] = set()
    spans = []
    for batch in batches:
        while pending and pending[-1].first_offset <= batch.span.last:
            aborted_producers.add(pending.pop().producer_id)
        if batch.producer_id not in aborted_producers:
            continue
        if batch.attributes & layout.ATTRIBUTE_CONTROL:
            control = data.handle.read(data.position + batch.position, batch.size)
            if control_type(control) == ControlType.ABORT:
                aborted_producers.discard(batch.producer_id)
        elif batch.attributes & layout.ATTRIBUTE_TRANSACTIONAL:
            spans.append(batch.span)
    return spans
