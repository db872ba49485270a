"""Conversion of compressed batches and wrappers into wrappers v0 or v1 with the same codec.

A batch becomes several wrappers if its messages exceed WRAPPED_BYTES or the room in the response. The first wrapper
begins with the first requested record, so that a client can read a large batch in several responses. Only a single
record must fit into a response.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.fetching.converted_window import ConvertedWindow
from kafkalog_broker.fetching.legacy_messages import (
    I64,
    U8,
    PayloadKind,
    encode_messages,
    end_positions,
    locate_messages,
    units_of_batches,
)
from kafkalog_broker.storage.append.decompression import decompress_records
from kafkalog_broker.storage.append.legacy_wrapper import build_wrapper, compress_message_set
from kafkalog_broker.storage.append.message_layouts import MessageColumn, Unit
from kafkalog_broker.storage.append.record_walk import as_array
from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format import layout
from kafkalog_spark.format.codecs import CODECS
from kafkalog_spark.format.layout import MAX_DECOMPRESSED, Codec, HeaderColumn
from kafkalog_spark.log.codecs.scratch import Scratch

WRAPPED_BYTES = 1 << 20
"""Bytes of messages in a wrapper: the default fetch size of old clients."""
WRAPPER_OVERHEAD = layout.LEGACY_MIN_SIZE[1]
"""Bytes of a wrapper besides its value."""

_MAX_WRAPPED_MESSAGES = WRAPPED_BYTES // layout.LEGACY_MIN_SIZE[0]
_SOURCE_MAGIC = 1  # of wrappers that are converted: every client can read wrappers v0
_SCRATCH_BYTES = 256 << 10  # initial size of the buffer for the messages of a wrapper, which grows on demand
_NOT_IN_MESSAGE_SETS = frozenset(codec for codec, properties in CODECS.items() if not properties.in_message_sets)


class _DecompressedBatch(NamedTuple):
    """A compressed batch after its decompression, and how far its messages have been converted.

    Attributes:
        codec: Codec of the batch, which the new wrappers get too.
        kind: Kind of the content of `payload`.
        payload: The records of a v2 batch, or the messages of a wrapper.
        units: int64[1, len(Unit)]: the batch as the kernels take it. `advance` changes START and COUNT.
    """

    codec: Codec
    kind: PayloadKind
    payload: U8
    units: I64

    @property
    def has_more(self) -> bool:
        """True if messages are left after the last call of `advance`."""
        return bool(self.units[0, Unit.START] < self.units[0, Unit.END])

    def advance(self, last: I64) -> None:
        """Continue after a message, given its columns (see MessageColumn)."""
        self.units[0, Unit.START] = last[MessageColumn.END]
        self.units[0, Unit.COUNT] -= last[MessageColumn.NUMBER] + 1  # of records; messages are not counted


def convert_compressed(converted: ConvertedWindow, data: memoryview, batch: I64, kind: PayloadKind) -> None:
    """Convert one compressed batch or wrapper v1 until its end, or until the window is full.

    Args:
        converted: Gets the wrappers.
        data: Bytes of a window of the log.
        batch: Row of the batch in the header table of `data`.
        kind: RECORDS for a v2 batch, MESSAGES for a wrapper.

    Raises:
        CorruptBatch: A record is malformed, or the batch cannot be decompressed.
        BrokerError: unsupported_compression_type for zstd, which messages v0 and v1 cannot have.
    """
    codec = int(batch[HeaderColumn.ATTRIBUTES]) & layout.ATTRIBUTE_CODEC
    if codec in _NOT_IN_MESSAGE_SETS:
        name = Codec(codec).label
        raise BrokerError(
            ErrorCode.unsupported_compression_type,
            f"{name} batches cannot be converted for clients that do not support {name}",
        )
    position, size = int(batch[HeaderColumn.POSITION]), int(batch[HeaderColumn.SIZE])
    compressed = data[position : position + size]
    decompress = _decompress_batch if kind is PayloadKind.RECORDS else _decompress_wrapper
    source = decompress(compressed, batch, codec)
    while _add_wrapper(converted, source):
        pass


def _decompress_batch(compressed: memoryview, batch: I64, codec: int) -> _DecompressedBatch:
    records = decompress_records(codec, compressed[layout.RECORDS_AT :])
    units = units_of_batches(batch[None])
    units[0, Unit.START], units[0, Unit.END] = 0, len(records)
    return _DecompressedBatch(Codec(codec), PayloadKind.RECORDS, as_array(records), units)


def _decompress_wrapper(compressed: memoryview, batch: I64, codec: int) -> _DecompressedBatch:
    from kafkalog_spark.log.decode.decompressed_batches import open_wrapper  # loads Numba

    scratch = Scratch(_SCRATCH_BYTES, expected_size=MAX_DECOMPRESSED)
    attributes, offset = int(batch[HeaderColumn.ATTRIBUTES]), int(batch[HeaderColumn.LAST_OFFSET])
    wrapper = open_wrapper(compressed, _SOURCE_MAGIC, attributes, offset, scratch, MAX_DECOMPRESSED)
    units = units_of_batches(batch[None])
    units[0, Unit.START], units[0, Unit.END] = 0, wrapper.end
    units[0, Unit.BASE_OFFSET] = wrapper.offset_shift
    return _DecompressedBatch(Codec(codec), PayloadKind.MESSAGES, scratch.read_only(), units)


def _add_wrapper(converted: ConvertedWindow, source: _DecompressedBatch) -> bool:
    """Add a wrapper of the next messages of `source`, and advance `source` past them.

    Returns:
        False if no message is left, or the window is full.
    """
    located = locate_messages(
        source.kind, source.payload, source.units, converted.request.offset, _MAX_WRAPPED_MESSAGES
    )
    messages = located.columns
    ends = end_positions(messages, converted.request.magic)
    # 1/64 of the room is for codecs that make incompressible data larger. The frame of a codec can make a few bytes
    # larger by more than 1/64; then `_encode_fitting` tries fewer messages.
    safe_bytes = min(converted.room_left - WRAPPER_OVERHEAD - converted.room_left // 64, WRAPPED_BYTES)
    count = int(np.searchsorted(ends, safe_bytes, side="right"))
    if not len(messages):
        if located.is_malformed:  # the messages before it have been sent
            raise CorruptBatch("a record is malformed")
        return False
    wrapper, count = _encode_fitting(converted, source, messages, ends, max(count, 1))
    if len(wrapper) > converted.room_left:
        converted.add_oversized(wrapper)
        return False
    converted.add(wrapper)
    source.advance(messages[count - 1])
    if not source.has_more:
        return False
    converted.is_full = converted.room_left <= WRAPPER_OVERHEAD
    return not converted.is_full


def _encode_fitting(
    converted: ConvertedWindow, source: _DecompressedBatch, messages: I64, ends: I64, count: int
) -> tuple[bytes, int]:
    """Encode a wrapper of the first `count` messages, or of fewer if it does not fit into the window.

    Args:
        ends: End position of each message after its conversion.

    Returns:
        The wrapper and the number of its messages. It may be too large only if that number is 1.
    """
    while True:
        wrapper = _encode_wrapper(converted.request.magic, source, messages[:count])
        if len(wrapper) <= converted.room_left or count == 1:
            return wrapper, count
        # The codec has made the messages larger than the room: try half of their bytes.
        count = max(int(np.searchsorted(ends, ends[count - 1] // 2, side="right")), 1)


def _encode_wrapper(magic: int, source: _DecompressedBatch, messages: I64) -> bytes:
    unit, codec = source.units[0], source.codec
    attributes = int(codec)
    if unit[Unit.APPEND_TIME]:
        timestamp = unit[Unit.TIMESTAMP]
        if magic == 1:
            attributes |= layout.ATTRIBUTE_LOG_APPEND_TIME
    else:
        timestamp = messages[:, MessageColumn.TIMESTAMP].max(initial=layout.NO_TIMESTAMP)
    message_set = encode_messages(source.payload, messages, magic, relative_offsets=magic == 1)
    value = compress_message_set(codec, magic, message_set)
    return build_wrapper(magic, attributes, value, int(messages[-1, MessageColumn.OFFSET]), int(timestamp))
