"""What a log holds, made messages v0 or v1 for clients that know no others (Kafka's RecordsUtil.downConvert).

Left out: headers of records, control batches, and records of transactions that have been aborted, since such a client
cannot tell. Offsets stay, timestamps go in v0, and a compressed batch becomes a wrapper with its codec; zstd, which
these formats do not have, is UNSUPPORTED_COMPRESSION_TYPE. Messages that the client can read go out as they lie there.

A batch that decompresses to much becomes several wrappers of at most WRAPPED_BYTES of messages, and a record that was
asked for begins the first one: so a client gets on with any batch whose records fit into what it asks for.

For a thread. One call looks at one window of the log, READ_BYTES or a batch that is larger, and ends early when it has
taken AT_ONCE_S: then it is another request's turn there.
"""

from __future__ import annotations

from itertools import pairwise
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.fetching.conversion_fields import C, Outcome, U, W
from kafkalog_broker.fetching.conversion_window import (
    I64,
    U8,
    Asked,
    Kind,
    as_array,
    headers_of,
    kinds_of,
    runs,
    say_what_is_wrong,
)
from kafkalog_broker.fetching.wrapped_messages import OVERHEAD, wrapped
from kafkalog_broker.storage.append.recompression import unpacked
from kafkalog_broker.storage.partition.log_reader import LogReader
from kafkalog_spark.errors import CorruptBatch, KafkalogError
from kafkalog_spark.log.format import layout
from kafkalog_spark.log.format.layout import Codec, H
from kafkalog_spark.log.read.decompress import MAX_DECOMPRESSED
from kafkalog_spark.log.read.scratch import Scratch

READ_BYTES = 256 << 10
WRAPPED_BYTES = 1 << 20
"""Bytes of messages in a wrapper: what clients of that time asked for at most by default."""
AT_ONCE_S = 0.005
MOST_BATCH = MAX_DECOMPRESSED
"""Bytes of a batch that is taken into memory."""

_LARGEST_HEADER = layout.LEGACY_MIN_SIZE[1]


class Converted(NamedTuple):
    """pieces: bytes-like, `size` bytes in all. next_offset: all below was looked at. is_full: there is no more room."""

    pieces: list[Any]
    size: int
    next_offset: int
    is_full: bool


def convert(reader: LogReader, asked: Asked) -> Converted:
    """The window at `asked.offset`. Raises BrokerError where there is nothing in front of what is wrong: that of
    LogReader.find_range, corrupt_message, message_too_large, unsupported_compression_type. Loads Numba."""
    end_s = perf_counter() + AT_ONCE_S
    found = reader.find_range(asked.offset, READ_BYTES, up_to=asked.until, at_least_one=True)
    if not found.slices:
        return Converted([], 0, asked.until, False)
    if len(found.slices[0]) > MOST_BATCH:
        raise BrokerError(
            ErrorCode.message_too_large, f"a batch of {len(found.slices[0])} bytes, {MOST_BATCH} are converted at most"
        )
    data = memoryview(reader.read_slice(found.slices[0]))
    out = _Out(asked)
    next_offset = asked.offset
    try:
        table = headers_of(data)
        kinds = kinds_of(table, reader, asked, found.next_offset)
        for first, last in runs(kinds):
            kind = Kind(int(kinds[first]))
            for begin, end in ((first, last),) if kind not in _PACKED else pairwise(range(first, last + 1)):
                _ADD[kind](out, data, table[begin:end], kind)
                if out.is_full:
                    return out.converted(next_offset)
                next_offset = max(int(table[end - 1, H.LAST_OFFSET]) + 1, next_offset)
                if perf_counter() >= end_s:
                    return out.converted(next_offset)
        if sum(table[:, H.SIZE].tolist()) < len(data):
            say_what_is_wrong(data, int(table[:, H.SIZE].sum()))
    except KafkalogError as error:
        if not out.pieces:
            raise _as_broker_error(error) from error
        out.is_full = True  # it is reported when it is asked for
        return out.converted(next_offset)
    return out.converted(found.next_offset)


class _Out:
    """What a window has become so far."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.pieces: list[Any] = []
        self.size = 0
        self.is_full = False

    @property
    def left(self) -> int:
        return self.asked.room - self.size

    def add(self, piece: Any) -> None:
        self.pieces.append(piece)
        self.size += len(piece)

    def add_too_large(self, piece: Any) -> None:
        """A message, or wrapper of one, for which there is no room."""
        self.is_full = True
        if not self.pieces and self.asked.whole:
            self.add(piece)
        elif not self.pieces and self.asked.cut:
            self.add(piece[: self.asked.room])

    def converted(self, next_offset: int) -> Converted:
        return Converted(self.pieces, self.size, next_offset, self.is_full)


def _hidden(out: _Out, data: memoryview, rows: I64, kind: Kind) -> None:
    """Control batches and aborted records."""


def _readable(out: _Out, data: memoryview, rows: I64, kind: Kind) -> None:
    start = int(rows[0, H.POSITION])
    ends = np.cumsum(rows[:, H.SIZE])
    fitting = int(np.searchsorted(ends, out.left, side="right"))
    if fitting:
        out.add(data[start : start + int(ends[fitting - 1])])
    if fitting < len(rows):
        position, size = int(rows[fitting, H.POSITION]), int(rows[fitting, H.SIZE])
        out.add_too_large(data[position : position + size])


def _plain(out: _Out, data: memoryview, rows: I64, kind: Kind) -> None:
    """Batches and messages that are not compressed, all in one call."""
    units = _units(rows)
    if kind == Kind.MESSAGES:
        units[:, U.START], units[:, U.BASE_OFFSET] = rows[:, H.POSITION], 0
    magic, payload = out.asked.magic, as_array(data)
    bytes_there, messages = int(rows[:, H.SIZE].sum()), int(np.maximum(units[:, U.COUNT], 0).sum())
    most = bytes_there + min(messages, bytes_there) * _LARGEST_HEADER
    cursor, room = _cursor(), max(min(out.left, most), 0)
    while True:
        target = np.empty(room, np.uint8)
        outcome = _run(kind, payload, units, _wanted(magic, out.asked.offset, 0, room), cursor, target)
        filled = int(cursor[C.FILLED])
        if filled > out.left:
            out.add_too_large(target[:filled].data)
        elif filled:
            out.add(target[:filled].data)
        if outcome == Outcome.MALFORMED:
            raise CorruptBatch("a record is malformed")
        if outcome == Outcome.DONE or out.is_full:
            return
        if out.pieces or filled or not (out.asked.whole or out.asked.cut):
            out.is_full = True
            return
        room = int(cursor[C.NEEDED])


def _packed(out: _Out, data: memoryview, rows: I64, kind: Kind) -> None:
    """One compressed batch or wrapper, as wrappers of what there is room for."""
    from kafkalog_spark.log.read.batch_contents import open_wrapper  # with Numba: not when a broker starts

    row = rows[0]
    position, size = int(row[H.POSITION]), int(row[H.SIZE])
    codec, batch = int(row[H.ATTRIBUTES]) & layout.ATTRIBUTE_CODEC, data[position : position + size]
    if codec == Codec.ZSTD:
        raise BrokerError(
            ErrorCode.unsupported_compression_type, "zstd batches are not converted for clients that do not know zstd"
        )
    units = _units(rows)
    if kind == Kind.PACKED_MESSAGES:
        scratch = Scratch(READ_BYTES, most=MAX_DECOMPRESSED)
        opened = open_wrapper(batch, 1, int(row[H.ATTRIBUTES]), int(row[H.LAST_OFFSET]), scratch, MAX_DECOMPRESSED)
        payload = scratch.read_only()
        units[0, U.END], units[0, U.BASE_OFFSET] = opened.end, opened.add
    else:
        records = unpacked(codec, batch[layout.RECORDS_AT :])
        payload = as_array(records)
        units[0, U.END] = len(records)
    units[0, U.START] = 0
    _pack_again(out, kind, codec, payload, units)


def _pack_again(out: _Out, kind: Kind, codec: int, payload: U8, units: I64) -> None:
    magic, cursor = out.asked.magic, _cursor()
    append_time, timestamp = bool(units[0, U.APPEND_TIME]), int(units[0, U.TIMESTAMP])
    chunk = _chunk(out.left)
    target = np.empty(chunk, np.uint8)
    while True:
        before = cursor.copy()
        cursor[C.FILLED] = cursor[C.COUNT] = 0
        outcome = _run(kind, payload, units, _wanted(magic, out.asked.offset, int(magic == 1), chunk), cursor, target)
        filled, count = int(cursor[C.FILLED]), int(cursor[C.COUNT])
        if outcome == Outcome.MALFORMED:
            raise CorruptBatch("a record is malformed")
        if not count and outcome == Outcome.FULL:  # one message that is larger
            chunk = int(cursor[C.NEEDED])
            target = np.empty(chunk, np.uint8)
            continue
        if not count:
            return
        time = timestamp if append_time else int(cursor[C.LARGEST_TIMESTAMP])
        made = wrapped(magic, codec, target[:filled].data, int(cursor[C.LAST_OFFSET]), time, append_time=append_time)
        if len(made) <= out.left:
            out.add(made)
        elif count == 1:
            out.add_too_large(made)
        else:
            chunk, cursor = filled // 2, before
            continue
        if outcome == Outcome.DONE or out.is_full:
            return
        if out.left <= OVERHEAD:
            out.is_full = True
            return
        chunk = _chunk(out.left)
        if chunk > len(target):
            target = np.empty(chunk, np.uint8)


def _chunk(left: int) -> int:
    """Bytes of messages that a wrapper of `left` bytes has room for, even when they do not compress."""
    return max(min(left - OVERHEAD - left // 64, WRAPPED_BYTES), 1)


def _units(rows: I64) -> I64:
    """int64[n, len(U)] of batches v2."""
    units = np.empty((len(rows), len(U)), np.int64)
    units[:, U.START] = rows[:, H.POSITION] + layout.RECORDS_AT
    units[:, U.END] = rows[:, H.POSITION] + rows[:, H.SIZE]
    units[:, U.BASE_OFFSET], units[:, U.COUNT] = rows[:, H.BASE_OFFSET], rows[:, H.COUNT]
    units[:, U.BASE_TIMESTAMP], units[:, U.TIMESTAMP] = rows[:, H.BASE_TIMESTAMP], rows[:, H.MAX_TIMESTAMP]
    units[:, U.APPEND_TIME] = (rows[:, H.ATTRIBUTES] & layout.ATTRIBUTE_LOG_APPEND_TIME) != 0
    return units


def _cursor() -> I64:
    cursor = np.zeros(len(C), np.int64)
    cursor[C.AT] = -1
    return cursor


def _wanted(magic: int, from_offset: int, relative: int, room: int) -> I64:
    wanted = np.empty(len(W), np.int64)
    wanted[W.MAGIC], wanted[W.FROM_OFFSET], wanted[W.RELATIVE], wanted[W.ROOM] = magic, from_offset, relative, room
    return wanted


def _run(kind: Kind, payload: U8, units: I64, wanted: I64, cursor: I64, target: U8) -> int:
    from kafkalog_broker.fetching import conversion_kernel
    from kafkalog_spark.log.kernels.primitives import CRC32_TABLE

    kernel = conversion_kernel.from_records if kind in _OF_RECORDS else conversion_kernel.from_messages
    return int(kernel(payload, units, wanted, cursor, CRC32_TABLE, target))


def _as_broker_error(error: KafkalogError) -> BrokerError:
    return error if isinstance(error, BrokerError) else BrokerError(ErrorCode.corrupt_message, error.what)


_OF_RECORDS = frozenset((Kind.RECORDS, Kind.PACKED_RECORDS))
_PACKED = frozenset((Kind.PACKED_RECORDS, Kind.PACKED_MESSAGES))
_ADD = {
    Kind.HIDDEN: _hidden,
    Kind.READABLE: _readable,
    Kind.RECORDS: _plain,
    Kind.PACKED_RECORDS: _packed,
    Kind.MESSAGES: _plain,
    Kind.PACKED_MESSAGES: _packed,
}
