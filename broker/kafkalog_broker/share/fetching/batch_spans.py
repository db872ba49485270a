"""The batches of a log from an offset on: only their headers are read, and no more of them than are asked for."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from kafkalog_broker.share.partition.acquisition import Span
from kafkalog_broker.storage.partition.log_segment import FileSlice
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import control_type
from kafkalog_spark.format.layout import ControlType

_HEADER = struct.Struct(">qi4xb4xhi16xq")  # base offset, length, magic, attributes, last offset delta, producer id
_PREFIX = 12  # base offset and length, which does not count them
_WINDOW = 64 << 10
_LARGE = 16 << 10  # a batch; the next header is read alone then
_V2 = 2


class FoundBatch(NamedTuple):
    """A batch at `position` of the slice."""

    span: Span
    position: int
    size: int
    attributes: int
    producer_id: int

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & layout.ATTRIBUTE_CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & layout.ATTRIBUTE_TRANSACTIONAL)


def batches_in(found: FileSlice, offset: int, until: int) -> list[FoundBatch]:
    """The batches of a slice, which begins with the one that holds `offset`, up to the one that holds `until`. Raises
    OSError."""
    batches: list[FoundBatch] = []
    window, window_at, position, before = b"", 0, 0, offset - 1
    read_next = _WINDOW
    while position + _PREFIX < found.size:
        at = position - window_at
        if at + _HEADER.size > len(window):
            window = found.handle.read(found.position + position, min(read_next, found.size - position))
            window_at, at = position, 0
            if len(window) < _HEADER.size:
                break  # a message of an old format, shorter than a batch
        base, length, magic, attributes, delta, producer_id = _HEADER.unpack_from(window, at)
        if magic < _V2:  # a message, or a wrapper, which says its last offset only
            base, delta, attributes, producer_id = before + 1, base - before - 1, 0, layout.NO_PRODUCER_ID
        size = length + _PREFIX
        before = base + delta
        batches.append(FoundBatch(Span(base, before), position, size, attributes, producer_id))
        if before >= until:
            break
        position += size
        read_next = _HEADER.size if size > _LARGE else _WINDOW
    return batches


def aborted_in(found: FileSlice, batches: Sequence[FoundBatch], transactions: Sequence[tuple[int, int]]) -> list[Span]:
    """Those of aborted transactions; these are (producer id, first offset). Raises OSError."""
    pending = sorted(transactions, key=lambda transaction: transaction[1], reverse=True)
    aborted: set[int] = set()
    spans = []
    for batch in batches:
        while pending and pending[-1][1] <= batch.span.last:
            aborted.add(pending.pop()[0])
        if batch.producer_id not in aborted:
            continue
        if batch.is_control:
            data = found.handle.read(found.position + batch.position, batch.size)
            if control_type(data) == ControlType.ABORT:
                aborted.discard(batch.producer_id)
        elif batch.is_transactional:
            spans.append(batch.span)
    return spans
