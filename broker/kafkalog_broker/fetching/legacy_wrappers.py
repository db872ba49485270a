"""Conversion of compressed batches and wrappers into wrappers v0 or v1 with the same codec.

A batch becomes several wrappers if its messages exceed WRAPPED_BYTES or the room in the response. The first wrapper
begins with the first wanted record, so a client can read a batch of any size in parts, if each record fits into a
response.
"""

from __future__ import annotations

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
from kafkalog_broker.storage.append.legacy_wrapper import build_wrapper
from kafkalog_broker.storage.append.lz4_frame import header_checksum
from kafkalog_broker.storage.append.message_layouts import MessageColumn, Unit
from kafkalog_broker.storage.append.record_walk import as_array
from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format import layout
from kafkalog_spark.format.codecs import CODECS
from kafkalog_spark.format.layout import MAX_DECOMPRESSED, Codec, HeaderColumn
from kafkalog_spark.log.codecs.compress import compress
from kafkalog_spark.log.codecs.scratch import Scratch

WRAPPED_BYTES = 1 << 20
"""Bytes of messages in a wrapper: the default fetch size of old clients."""
WRAPPER_OVERHEAD = layout.LEGACY_MIN_SIZE[1]
"""Bytes of a wrapper besides its value."""

_MAX_WRAPPED_MESSAGES = WRAPPED_BYTES // layout.LEGACY_MIN_SIZE[0]
_SCRATCH_BYTES = 256 << 10
_LZ4_CHECKSUM_AT = 6
"""Position of the header checksum in a frame without content size and dictionary ID, as `compress` makes it."""
_NOT_IN_MESSAGE_SETS = frozenset(codec for codec, properties in CODECS.items() if not properties.in_message_sets)


def convert_compressed(out: ConvertedWindow, data: memoryview, batch: I64, kind: PayloadKind) -> None:
    """Convert one compressed batch or wrapper v1, given its row in the header table of `data`.

    Raises:
        CorruptBatch: A record is malformed, or the batch cannot be decompressed.
        BrokerError: unsupported_compression_type for zstd, which messages v0 and v1 cannot have.
    """
    position, size = int(batch[HeaderColumn.POSITION]), int(batch[HeaderColumn.SIZE])
    attributes = int(batch[HeaderColumn.ATTRIBUTES])
    codec = attributes & layout.ATTRIBUTE_CODEC
    compressed = data[position : position + size]
    if codec in _NOT_IN_MESSAGE_SETS:
        name = Codec(codec).label
        raise BrokerError(
            ErrorCode.unsupported_compression_type,
            f"{name} batches cannot be converted for clients that do not support {name}",
        )
    unit_table = units_of_batches(batch[None])
    unit = unit_table[0]
    if kind is PayloadKind.MESSAGES:
        from kafkalog_spark.log.decode.decompressed_batches import open_wrapper  # loads Numba

        scratch = Scratch(_SCRATCH_BYTES, expected_size=MAX_DECOMPRESSED)
        opened = open_wrapper(
            compressed, 1, attributes, int(batch[HeaderColumn.LAST_OFFSET]), scratch, MAX_DECOMPRESSED
        )
        payload = scratch.read_only()
        unit[Unit.END], unit[Unit.BASE_OFFSET] = opened.end, opened.offset_shift
    else:
        records = decompress_records(codec, compressed[layout.RECORDS_AT :])
        payload = as_array(records)
        unit[Unit.END] = len(records)
    unit[Unit.START] = 0
    _add_wrappers(out, Codec(codec), payload, unit_table, kind)


def _add_wrappers(out: ConvertedWindow, codec: Codec, payload: U8, unit_table: I64, kind: PayloadKind) -> None:
    """Add wrappers of the messages in `payload` until all are added or the window is full.

    `unit_table` has one row. Its start and count advance to the messages that are not added yet.
    """
    unit = unit_table[0]
    while True:
        located = locate_messages(kind, payload, unit_table, out.request.offset, _MAX_WRAPPED_MESSAGES)
        messages = located.columns
        ends = end_positions(messages, out.request.magic)
        # A codec can make data larger, by less than 1/64. So this many bytes fit even if they do not compress.
        certain_bytes = min(out.room_left - WRAPPER_OVERHEAD - out.room_left // 64, WRAPPED_BYTES)
        count = int(np.searchsorted(ends, max(certain_bytes, 1), side="right"))
        if located.is_malformed and count == len(messages):
            raise CorruptBatch("a record is malformed")
        if not len(messages):
            return
        wrapper, count = _encode_fitting(out, codec, payload, messages, ends, unit, max(count, 1))
        if len(wrapper) > out.room_left:
            out.add_oversized(wrapper)
            return
        out.add(wrapper)
        last = messages[count - 1]
        unit[Unit.START] = last[MessageColumn.END]
        unit[Unit.COUNT] -= last[MessageColumn.NUMBER] + 1
        if unit[Unit.START] >= unit[Unit.END]:
            return
        if out.room_left <= WRAPPER_OVERHEAD:
            out.is_full = True
            return


def _encode_fitting(
    out: ConvertedWindow, codec: Codec, payload: U8, messages: I64, ends: I64, unit: I64, count: int
) -> tuple[bytes, int]:
    """Encode a wrapper of the first `count` messages, or of fewer if it does not fit into the window.

    Args:
        ends: End position of each message after its conversion.

    Returns:
        The wrapper and the number of its messages. It may be too large only if that number is 1.
    """
    while True:
        wrapper = _encode_wrapper(out.request.magic, codec, payload, messages[:count], unit)
        if len(wrapper) <= out.room_left or count == 1:
            return wrapper, count
        # The messages compress badly: try half of their bytes.
        count = max(int(np.searchsorted(ends, ends[count - 1] // 2, side="right")), 1)


def _encode_wrapper(magic: int, codec: Codec, payload: U8, messages: I64, unit: I64) -> bytes:
    is_append_time = bool(unit[Unit.APPEND_TIME])
    largest = messages[:, MessageColumn.TIMESTAMP].max(initial=layout.NO_TIMESTAMP)
    timestamp = unit[Unit.TIMESTAMP] if is_append_time else largest
    value = compress(codec, encode_messages(payload, messages, magic, relative_offsets=magic == 1))
    if codec == Codec.LZ4 and magic == 0:  # these clients compute the checksum over the magic number too (KAFKA-3160)
        checksum = header_checksum(value[:_LZ4_CHECKSUM_AT])
        value = value[:_LZ4_CHECKSUM_AT] + bytes((checksum,)) + value[_LZ4_CHECKSUM_AT + 1 :]
    attributes = codec | (layout.ATTRIBUTE_LOG_APPEND_TIME if is_append_time and magic == 1 else 0)
    return build_wrapper(magic, attributes, value, int(messages[-1, MessageColumn.OFFSET]), int(timestamp))
