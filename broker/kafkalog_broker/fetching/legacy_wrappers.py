"""Conversion of compressed batches and wrappers into wrappers v0 or v1 with the same codec.

A batch becomes several wrappers if its messages exceed MAX_WRAPPED_BYTES or the room in the response. The first wrapper
begins with the first requested record. A client can thus read a large batch in several responses, and only a single
record must fit into one.
"""

from __future__ import annotations

from dataclasses import dataclass

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

MAX_WRAPPED_BYTES = 1 << 20
"""Bytes of messages in a wrapper: the default fetch size of old clients."""
WRAPPER_OVERHEAD = layout.LEGACY_MIN_SIZE[1]
"""Bytes of a wrapper besides its value."""

_MAX_WRAPPED_MESSAGES = MAX_WRAPPED_BYTES // layout.LEGACY_MIN_SIZE[0]
_SOURCE_MAGIC = 1  # only wrappers v1 are converted; those of v0 are sent as they are
_SCRATCH_BYTES = 256 << 10  # initial size of the buffer for the messages of a wrapper, which grows on demand
_NOT_IN_MESSAGE_SETS = frozenset(codec for codec, properties in CODECS.items() if not properties.in_message_sets)


@dataclass(frozen=True)
class _DecompressedBatch:
    """A compressed batch after its decompression, and the part of it that is not converted yet.

    Attributes:
        codec: Codec of the batch, which the new wrappers get too.
        kind: Kind of the content of `payload`.
        payload: The records of a v2 batch, or the messages of a wrapper.
        rest: int64[1, len(Unit)]: the unconverted part, for the kernels. `advance` moves its START and COUNT.
    """

    codec: Codec
    kind: PayloadKind
    payload: U8
    rest: I64

    @property
    def has_more(self) -> bool:
        """True if messages are left after the last call of `advance`."""
        return bool(self.rest[0, Unit.START] < self.rest[0, Unit.END])

    def advance(self, last: I64) -> None:
        """Continue after a message, given its columns (see MessageColumn)."""
        self.rest[0, Unit.START] = last[MessageColumn.END]
        # Only records are counted; NUMBER of a message is 0, and the kernel for messages does not use COUNT.
        self.rest[0, Unit.COUNT] -= last[MessageColumn.NUMBER] + 1


def convert_compressed(output: ConvertedWindow, data: memoryview, header: I64, kind: PayloadKind) -> None:
    """Convert one compressed batch or wrapper v1 until its end, or until the window is full.

    Args:
        output: Gets the wrappers.
        data: Bytes of a window of the log.
        header: Row of the batch in the header table of `data`.
        kind: RECORDS for a v2 batch, MESSAGES for a wrapper.

    Raises:
        CorruptBatch: A record is malformed, or the batch cannot be decompressed.
        BrokerError: unsupported_compression_type for zstd, which messages v0 and v1 cannot have.
    """
    codec = int(header[HeaderColumn.ATTRIBUTES]) & layout.ATTRIBUTE_CODEC
    if codec in _NOT_IN_MESSAGE_SETS:
        name = Codec(codec).label
        raise BrokerError(
            ErrorCode.unsupported_compression_type,
            f"{name} batches cannot be converted for clients that do not support {name}",
        )
    position, size = int(header[HeaderColumn.POSITION]), int(header[HeaderColumn.SIZE])
    compressed = data[position : position + size]
    decompress = _decompress_batch if kind is PayloadKind.RECORDS else _decompress_wrapper
    batch = decompress(compressed, header, codec)
    while _add_wrapper(output, batch):
        pass


def _decompress_batch(compressed: memoryview, header: I64, codec: int) -> _DecompressedBatch:
    records = decompress_records(codec, compressed[layout.RECORDS_AT :])
    units = units_of_batches(header[None])
    units[0, Unit.START], units[0, Unit.END] = 0, len(records)
    return _DecompressedBatch(Codec(codec), PayloadKind.RECORDS, as_array(records), units)


def _decompress_wrapper(compressed: memoryview, header: I64, codec: int) -> _DecompressedBatch:
    from kafkalog_spark.log.decode.decompressed_batches import open_wrapper  # loads Numba

    scratch = Scratch(_SCRATCH_BYTES, expected_size=MAX_DECOMPRESSED)
    attributes, offset = int(header[HeaderColumn.ATTRIBUTES]), int(header[HeaderColumn.LAST_OFFSET])
    wrapper = open_wrapper(compressed, _SOURCE_MAGIC, attributes, offset, scratch, MAX_DECOMPRESSED)
    units = units_of_batches(header[None])
    units[0, Unit.START], units[0, Unit.END] = 0, wrapper.end
    units[0, Unit.BASE_OFFSET] = wrapper.offset_shift
    return _DecompressedBatch(Codec(codec), PayloadKind.MESSAGES, scratch.read_only(), units)


def _add_wrapper(output: ConvertedWindow, batch: _DecompressedBatch) -> bool:
    """Add a wrapper of the next messages of `batch`, and advance `batch` past them.

    Returns:
        False if no message is left, or the window is full.
    """
    located = locate_messages(batch.kind, batch.payload, batch.rest, output.request.offset, _MAX_WRAPPED_MESSAGES)
    messages = located.columns
    encoded_ends = end_positions(messages, output.request.magic)
    # 1/64 of the room is kept for codecs that make incompressible data larger. Around a few bytes, the frame alone may
    # be larger than that; `_encode_fitting` then tries fewer messages.
    safe_bytes = min(output.room_left - WRAPPER_OVERHEAD - output.room_left // 64, MAX_WRAPPED_BYTES)
    count = int(np.searchsorted(encoded_ends, safe_bytes, side="right"))
    if not len(messages):
        if located.is_malformed:
            raise CorruptBatch("a record is malformed")
        return False
    wrapper, count = _encode_fitting(output, batch, messages, encoded_ends, max(count, 1))
    if len(wrapper) > output.room_left:
        output.add_oversized(wrapper)
        return False
    output.add(wrapper)
    if located.is_malformed and count == len(messages):
        raise CorruptBatch("a record is malformed")  # after its predecessors, which the window keeps
    batch.advance(messages[count - 1])
    if not batch.has_more:
        return False
    output.is_full = output.room_left <= WRAPPER_OVERHEAD
    return not output.is_full


def _encode_fitting(
    output: ConvertedWindow, batch: _DecompressedBatch, messages: I64, encoded_ends: I64, count: int
) -> tuple[bytes, int]:
    """Encode a wrapper of the first `count` messages, or of fewer if it does not fit into the window.

    Args:
        encoded_ends: End position of each message after its conversion.

    Returns:
        The wrapper and the number of its messages. It may be too large only if that number is 1.
    """
    while True:
        wrapper = _encode_wrapper(output.request.magic, batch, messages[:count])
        if len(wrapper) <= output.room_left or count == 1:
            return wrapper, count
        # The codec has made the messages larger than the room: try half of their bytes.
        count = max(int(np.searchsorted(encoded_ends, encoded_ends[count - 1] // 2, side="right")), 1)


def _encode_wrapper(magic: int, batch: _DecompressedBatch, messages: I64) -> bytes:
    unit, codec = batch.rest[0], batch.codec
    attributes = int(codec)
    if unit[Unit.APPEND_TIME]:
        timestamp = unit[Unit.TIMESTAMP]
        if magic == 1:
            attributes |= layout.ATTRIBUTE_LOG_APPEND_TIME
    else:
        timestamp = messages[:, MessageColumn.TIMESTAMP].max(initial=layout.NO_TIMESTAMP)
    message_set = encode_messages(batch.payload, messages, magic, relative_offsets=magic == 1)
    value = compress_message_set(codec, magic, message_set)
    return build_wrapper(magic, attributes, value, int(messages[-1, MessageColumn.OFFSET]), int(timestamp))
