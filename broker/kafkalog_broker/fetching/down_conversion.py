"""Down-conversion of one window of a log into messages v0 or v1 (Kafka: RecordsUtil.downConvert).

Clients of Fetch 0 to 3 cannot read v2 batches. Headers of records, control batches and records of aborted transactions
are omitted, because these clients support none of them. Offsets stay, timestamps are dropped in v0, and a compressed
batch becomes wrappers with the same codec. A zstd batch is refused with UNSUPPORTED_COMPRESSION_TYPE, because these
formats have no zstd. Messages that the client can read are sent byte for byte, without decoding.

Blocks and computes; call from a worker thread. One call converts one window, READ_BYTES or one larger batch, and ends
early after MAX_CONVERSION_S so that other requests get the thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial
from itertools import pairwise
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.fetching.converted_window import ConversionRequest, ConvertedWindow
from kafkalog_broker.fetching.legacy_messages import (
    I64,
    PayloadKind,
    encode_messages,
    end_positions,
    locate_messages,
    units_of_batches,
)
from kafkalog_broker.fetching.legacy_wrappers import convert_compressed
from kafkalog_broker.storage.append.fetched_batches import sweep_batches
from kafkalog_broker.storage.append.kernel_loading import load_kernel
from kafkalog_broker.storage.append.message_layouts import Unit
from kafkalog_broker.storage.append.record_walk import as_array
from kafkalog_broker.storage.partition.log import Log
from kafkalog_spark.errors import CorruptBatch, KafkalogError
from kafkalog_spark.format import layout
from kafkalog_spark.format.layout import MAX_DECOMPRESSED, Codec, HeaderColumn
from kafkalog_spark.format.transaction_index import AbortedTransaction
from kafkalog_spark.log.read.batch_exclusion import AbortedBatches

if TYPE_CHECKING:
    from kafkalog_broker.remote.remote_log_reader import RemoteRead  # loaded only with remote storage

READ_BYTES = 256 << 10  # size of a window
MAX_CONVERSION_S = 0.005  # time after which a conversion ends early
MAX_BATCH_BYTES = MAX_DECOMPRESSED
"""Largest batch that is read into memory."""

FindAborted = Callable[[], Sequence[AbortedTransaction]]
"""Returns the aborted transactions with records in a window."""


class Conversion(IntEnum):
    """What a batch needs before it is sent."""

    HIDDEN = 0  # control batches, records of aborted transactions: omit
    READABLE = 1  # send byte for byte
    RECORDS = 2  # uncompressed v2 batch
    COMPRESSED_RECORDS = 3  # compressed v2 batch
    MESSAGES = 4  # message v1 for a client of v0
    COMPRESSED_MESSAGES = 5  # wrapper v1 for a client of v0


class _Window(NamedTuple):
    """Bytes of the log from the batch with the requested offset on.

    Attributes:
        data: Whole batches.
        next_offset: Offset after them.
        aborted: Returns the aborted transactions with records in them.
    """

    data: memoryview
    next_offset: int
    aborted: FindAborted


def convert(log: Log, request: ConversionRequest, remote: RemoteRead | None = None) -> ConvertedWindow:
    """Convert the window at `request.offset`.

    Args:
        log: Log to read.
        request: First offset, end, format and room.
        remote: Batches of the window if they are in remote storage.

    Raises:
        BrokerError: As `Log.find_range`, and corrupt_message, message_too_large or unsupported_compression_type; only
            if no message precedes the fault. Otherwise the window ends in front of it.
    """
    end_s = perf_counter() + MAX_CONVERSION_S
    converted = ConvertedWindow(request, request.offset)
    window = _local_window(log, request) if remote is None else _remote_window(remote)
    if window is None:
        converted.next_offset = request.until
        return converted
    try:
        is_whole = _convert_batches(converted, window, end_s)
    except KafkalogError as error:
        if not converted.pieces:
            if isinstance(error, BrokerError):
                raise
            raise BrokerError(ErrorCode.corrupt_message, error.what) from error
        converted.is_full = True  # the next request begins with the fault and reports it
    else:
        if is_whole:
            converted.next_offset = window.next_offset
    return converted


def conversions_of(table: I64, magic: int, aborted: FindAborted) -> I64:
    """Return int64[n]: the Conversion of each batch for a client of format `magic`.

    `aborted` is called only if a batch is transactional.
    """
    magics, attributes = table[:, HeaderColumn.MAGIC], table[:, HeaderColumn.ATTRIBUTES]
    is_compressed = (attributes & layout.ATTRIBUTE_CODEC) != Codec.NONE
    conversions: I64 = (np.where(magics == 2, Conversion.RECORDS, Conversion.MESSAGES) + is_compressed).astype(np.int64)
    conversions[magics <= magic] = Conversion.READABLE
    is_v2 = magics == 2
    conversions[is_v2 & ((attributes & layout.ATTRIBUTE_CONTROL) != 0)] = Conversion.HIDDEN
    if (is_v2 & ((attributes & layout.ATTRIBUTE_TRANSACTIONAL) != 0)).any():
        conversions[AbortedBatches(aborted()).excludes(table)] = Conversion.HIDDEN
    return conversions


def _local_window(log: Log, request: ConversionRequest) -> _Window | None:
    """Read the window from the local log. None if no batch is left below `request.until`."""
    log_range = log.find_range(request.offset, READ_BYTES, up_to=request.until, at_least_one=True)
    if not log_range.slices:
        return None
    first = log_range.slices[0]
    _check_size(len(first))
    aborted = partial(log.aborted_transactions, request.offset, log_range.next_offset)
    return _Window(memoryview(log.read_slice(first)), log_range.next_offset, aborted)


def _remote_window(remote: RemoteRead) -> _Window:
    _check_size(len(remote.records))
    return _Window(memoryview(remote.records), remote.next_offset, lambda: remote.aborted or ())


def _check_size(size: int) -> None:
    if size > MAX_BATCH_BYTES:
        raise BrokerError(
            ErrorCode.message_too_large, f"a batch of {size} bytes, {MAX_BATCH_BYTES} are converted at most"
        )


def _convert_batches(converted: ConvertedWindow, window: _Window, end_s: float) -> bool:
    """Convert batch by batch until the window ends (True), `converted` is full or the time is over (False)."""
    load_kernel()  # loads LLVM without blocking other threads
    data = window.data
    table, fault = sweep_batches(data)
    conversions = conversions_of(table, converted.request.magic, window.aborted)
    # Neighbouring batches with the same conversion are converted together, unless each becomes a wrapper.
    for first, last in pairwise(np.flatnonzero(np.diff(conversions, prepend=-1, append=-1)).tolist()):
        conversion = Conversion(int(conversions[first]))
        is_compressed = conversion in (Conversion.COMPRESSED_RECORDS, Conversion.COMPRESSED_MESSAGES)
        for begin, end in pairwise(range(first, last + 1)) if is_compressed else ((first, last),):
            match conversion:
                case Conversion.READABLE:
                    _copy(converted, data, table[begin:end])
                case Conversion.RECORDS:
                    _convert_uncompressed(converted, data, table[begin:end], PayloadKind.RECORDS)
                case Conversion.MESSAGES:
                    _convert_uncompressed(converted, data, table[begin:end], PayloadKind.MESSAGES)
                case Conversion.COMPRESSED_RECORDS:
                    convert_compressed(converted, data, table[begin], PayloadKind.RECORDS)
                case Conversion.COMPRESSED_MESSAGES:
                    convert_compressed(converted, data, table[begin], PayloadKind.MESSAGES)
            if converted.is_full:
                return False
            converted.next_offset = max(int(table[end - 1, HeaderColumn.LAST_OFFSET]) + 1, converted.next_offset)
            if perf_counter() >= end_s:
                return False
    if fault is not None:
        raise fault
    if rest := len(data) - int(table[:, HeaderColumn.SIZE].sum()):
        raise CorruptBatch(f"{rest} bytes after the last batch are not a batch")
    return True


def _copy(converted: ConvertedWindow, data: memoryview, batches: I64) -> None:
    start = int(batches[0, HeaderColumn.POSITION])
    ends = np.cumsum(batches[:, HeaderColumn.SIZE])
    fitting = int(np.searchsorted(ends, converted.room_left, side="right"))
    if fitting:
        converted.add(data[start : start + int(ends[fitting - 1])])
    if fitting < len(batches):
        position, size = int(batches[fitting, HeaderColumn.POSITION]), int(batches[fitting, HeaderColumn.SIZE])
        converted.add_oversized(data[position : position + size])


def _convert_uncompressed(converted: ConvertedWindow, data: memoryview, batches: I64, kind: PayloadKind) -> None:
    """Convert neighbouring batches, or messages, in one call of the kernels."""
    units = units_of_batches(batches)
    max_records = len(batches)
    if kind is PayloadKind.MESSAGES:
        units[:, Unit.START] = batches[:, HeaderColumn.POSITION]
        units[:, Unit.BASE_OFFSET] = 0
    else:
        announced = int(np.maximum(batches[:, HeaderColumn.COUNT], 0).sum())
        size = int(batches[:, HeaderColumn.SIZE].sum())
        max_records = min(announced, size // layout.MIN_RECORD_SIZE)
    magic = converted.request.magic
    payload = as_array(data)
    messages, is_malformed = locate_messages(kind, payload, units, converted.request.offset, max_records)
    fitting = int(np.searchsorted(end_positions(messages, magic), converted.room_left, side="right"))
    if fitting:
        converted.add(encode_messages(payload, messages[:fitting], magic))
    if fitting < len(messages):
        converted.add_oversized(encode_messages(payload, messages[fitting : fitting + 1], magic))
    elif is_malformed:
        raise CorruptBatch("a record is malformed")
