"""Conversion of compressed batches and wrappers into wrappers v0 or v1 with the same codec.

A batch becomes several wrappers if its messages exceed WRAPPED_BYTES or the room in the response. The first wrapper
begins with the first wanted record, so a client reads any batch in parts as long as its single records fit.
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

OVERHEAD = layout.LEGACY_MIN_SIZE[1]
"""Bytes of a wrapper besides its value."""
WRAPPED_BYTES = 1 << 20
"""Bytes of messages in a wrapper: the default fetch size of old clients."""
_MAX_WRAPPED = WRAPPED_BYTES // layout.LEGACY_MIN_SIZE[0]
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
            ErrorCode.unsupported_compression_type, f"{name} batches are not converted for clients without {name}"
        )
    units = units_of_batches(batch[None])
    if kind is PayloadKind.MESSAGES:
        from kafkalog_spark.log.decode.decompressed_batches import open_wrapper  # loads Numba

        scratch = Scratch(_SCRATCH_BYTES, expected_size=MAX_DECOMPRESSED)
        opened = open_wrapper(
            compressed, 1, attributes, int(batch[HeaderColumn.LAST_OFFSET]), scratch, MAX_DECOMPRESSED
        )
        payload = scratch.read_only()
        units[0, Unit.END], units[0, Unit.BASE_OFFSET] = opened.end, opened.add
    else:
        records = decompress_records(codec, compressed[layout.RECORDS_AT :])
        payload = as_array(records)
        units[0, Unit.END] = len(records)
    units[0, Unit.START] = 0
    _wrap(out, Codec(codec), payload, units, kind)


def _wrap(out: ConvertedWindow, codec: Codec, payload: U8, units: I64, kind: PayloadKind) -> None:
    """Add wrappers of the messages in `payload` until all are added or the window is full."""
    magic = out.request.magic
    unit = units[0]
    while True:
        located = locate_messages(kind, payload, units, out.request.offset, _MAX_WRAPPED)
        messages = located.columns
        ends = end_positions(messages, magic)
        # A wrapper with so many bytes of messages fits even if they do not compress.
        fitting_bytes = max(min(out.room_left - OVERHEAD - out.room_left // 64, WRAPPED_BYTES), 1)
        count = int(np.searchsorted(ends, fitting_bytes, side="right"))
        if located.is_malformed and count == len(messages):
            raise CorruptBatch("a record is malformed")
        if not len(messages):
            return
        count = max(count, 1)  # a message larger than `fitting_bytes` gets a wrapper of its own
        while True:
            wrapped = messages[:count]
            wrapper = _wrapper(magic, codec, payload, wrapped, unit)
            if len(wrapper) <= out.room_left or count == 1:
                break
            # The messages compress badly: try half of their bytes.
            count = max(int(np.searchsorted(ends, ends[count - 1] // 2, side="right")), 1)
        if len(wrapper) > out.room_left:
            out.add_oversized(wrapper)
            return
        out.add(wrapper)
        unit[Unit.START] = wrapped[-1, MessageColumn.END]
        unit[Unit.COUNT] -= wrapped[-1, MessageColumn.NUMBER] + 1
        if unit[Unit.START] >= unit[Unit.END]:
            return
        if out.room_left <= OVERHEAD:
            out.is_full = True
            return


def _wrapper(magic: int, codec: Codec, payload: U8, messages: I64, unit: I64) -> bytes:
    is_append_time = bool(unit[Unit.APPEND_TIME])
    largest = messages[:, MessageColumn.TIMESTAMP].max(initial=layout.NO_TIMESTAMP)
    timestamp = unit[Unit.TIMESTAMP] if is_append_time else largest
    value = compress(codec, encode_messages(payload, messages, magic, relative_offsets=magic == 1))
    if codec == Codec.LZ4 and magic == 0:  # these clients compute the checksum over the magic number too (KAFKA-3160)
        checksum = header_checksum(value[:_LZ4_CHECKSUM_AT])
        value = value[:_LZ4_CHECKSUM_AT] + bytes((checksum,)) + value[_LZ4_CHECKSUM_AT + 1 :]
    attributes = codec | (layout.ATTRIBUTE_LOG_APPEND_TIME if is_append_time and magic == 1 else 0)
    return build_wrapper(magic, attributes, value, int(messages[-1, MessageColumn.OFFSET]), int(timestamp))
