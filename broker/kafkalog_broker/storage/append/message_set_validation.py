"""Validation of message sets of format v0 and v1 (Produce 0 to 2), and their conversion into a v2 batch.

Without I/O, for a worker thread. The rules are Kafka's (`LogValidator`, `LegacyRecord`). A set contains plain messages,
or a single compressed message, the wrapper, whose value is another set:

- Each message is no larger than max.message.bytes, and its CRC is valid. A message that is cut short at the end of the
  set is omitted.
- All messages have the same magic byte. Messages in a wrapper have the wrapper's and are not compressed themselves.
- Each message follows the rules of the topic (`topic_rules`) and has the timestamp type CreateTime.
- A wrapper of format v1 has the offset of its last message, or 0, which some releases of librdkafka sent.

The result is one v2 batch with the wrapper's codec, or that of compression.type. Its base timestamp is the first
message's, -1 for format v0. Producers' offsets are ignored. Like every batch it must not exceed max.message.bytes.

For a negative size the error is INVALID_FETCH_SIZE, the protocol guide's InvalidMessageSize (4); later Kafka releases
respond with CORRUPT_MESSAGE. Where Kafka responds with UNKNOWN_SERVER_ERROR (an impossible key size, a malformed gzip
stream, codec 5), this broker responds with a specific error.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.append import lz4_frame
from kafkalog_broker.storage.append.append_validation import validate_batch
from kafkalog_broker.storage.append.decompression import decompress_records
from kafkalog_broker.storage.append.message_layouts import MessageColumn, SetFault
from kafkalog_broker.storage.append.message_set import fault_error, read_message_set
from kafkalog_broker.storage.append.recompression import compress_records, target_codec
from kafkalog_broker.storage.append.topic_rules import (
    TimestampBounds,
    check_records,
    check_size,
    needs_keys,
    sets_append_time,
    timestamp_bounds,
)
from kafkalog_broker.storage.append.validation_budget import MAX_PIECES
from kafkalog_spark.errors import CorruptBatch, KafkalogError
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import wrapper_value_at
from kafkalog_spark.format.codecs import CODECS, KAFKA_CODECS, listed
from kafkalog_spark.format.layout import MAX_DECOMPRESSED, Codec
from kafkalog_spark.log.write.encoded_batch import EncodedBatch, header_fields, seal

_V2 = 2
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_U32 = struct.Struct(">I")


class _Source(NamedTuple):
    """Decompressed message set to convert, and its codec in the request."""

    messages: memoryview
    codec: int


class _ConvertedRecords(NamedTuple):
    """Batch whose header is still empty, and the range of its records' timestamps in ms."""

    data: bytearray
    smallest_timestamp: int
    largest_timestamp: int


def validate_message_set(data: memoryview, config: LogConfig, now_ms: int) -> EncodedBatch | None:
    """Check the message set of one partition, and convert it into a batch to append.

    If `data` is a v2 batch, it is validated with `validate_batch` instead.

    Returns:
        None if the set contains no whole message.

    Raises:
        BrokerError: corrupt_message, invalid_fetch_size, invalid_record, invalid_timestamp, message_too_large,
            unsupported_compression_type.
    """
    magic = data[layout.MAGIC_AT] if len(data) > layout.MAGIC_AT else 0
    if magic == _V2:
        return validate_batch(data, config, now_ms)
    wrapper_size = _wrapper_size(data, magic)
    if wrapper_size is None:
        source = _Source(data, Codec.NONE)
        max_message_bytes = config.max_message_bytes
    else:
        _check_wrapper(data, wrapper_size, magic, config)
        source = _unwrap(data[:wrapper_size], magic)
        max_message_bytes = MAX_DECOMPRESSED
    is_wrapped = wrapper_size is not None
    messages, fault = read_message_set(source.messages, magic, max_message_bytes, is_inner=is_wrapped)
    converted = _convert(source.messages, messages)
    smallest, largest = timestamp_bounds(config, now_ms)
    bounds = TimestampBounds(max(smallest, 0), largest)  # messages cannot have negative timestamps
    is_outside = converted.smallest_timestamp < bounds.smallest or converted.largest_timestamp > bounds.largest
    if needs_keys(config) or (magic and is_outside):
        check_records(messages[:, MessageColumn.TIMESTAMP], messages[:, MessageColumn.KEY_SIZE], config, bounds)
    if fault:
        raise fault_error(fault, len(messages))
    if is_wrapped:
        _check_wrapper_offset(data, magic, messages)
    return _sealed_batch(converted, messages, source.codec, config, now_ms) if len(messages) else None


def _wrapper_size(data: memoryview, magic: int) -> int | None:
    """Return the size of the wrapper; None if the set does not begin with a whole wrapper."""
    if len(data) <= layout.LEGACY_ATTRIBUTES_AT or not data[layout.LEGACY_ATTRIBUTES_AT] & layout.ATTRIBUTE_CODEC:
        return None
    (length,) = _I32.unpack_from(data, layout.LENGTH_AT)
    size: int = length + layout.LOG_OVERHEAD
    return size if magic < _V2 and layout.LEGACY_MIN_SIZE[0] <= size <= len(data) else None


def _check_wrapper(data: memoryview, size: int, magic: int, config: LogConfig) -> None:
    (crc,) = _U32.unpack_from(data, layout.LEGACY_CRC_AT)
    check_size(size, config)
    if zlib.crc32(data[layout.MAGIC_AT : size]) != crc:
        raise fault_error(SetFault.CRC, 0)
    if size < layout.LEGACY_MIN_SIZE[magic]:
        raise fault_error(SetFault.FIELDS, 0)
    if magic and data[layout.LEGACY_ATTRIBUTES_AT] & layout.ATTRIBUTE_LOG_APPEND_TIME:
        raise fault_error(SetFault.APPEND_TIME_SET, 0)
    rest = data[size:]
    if len(rest) >= layout.LOG_OVERHEAD:
        (length,) = _I32.unpack_from(rest, layout.LENGTH_AT)
        if 0 <= length <= len(rest) - layout.LOG_OVERHEAD:
            raise _invalid("another message follows a compressed message, which must be the only one of its set")


def _unwrap(wrapper: memoryview, magic: int) -> _Source:
    """Return the message set in a wrapper; valid until the same thread decompresses again."""
    codec = wrapper[layout.LEGACY_ATTRIBUTES_AT] & layout.ATTRIBUTE_CODEC
    if codec not in KAFKA_CODECS:
        allowed = listed(codec for codec in KAFKA_CODECS if CODECS[codec].in_message_sets)
        message = f"codec {codec} is unknown, expected {allowed} in messages of format v0 and v1"
        raise BrokerError(ErrorCode.unsupported_compression_type, message)
    if not CODECS[Codec(codec)].in_message_sets:
        raise _invalid(f"messages of format v0 and v1 cannot be compressed with {Codec(codec).label}; send v2 batches")
    try:
        value_at = wrapper_value_at(wrapper, magic)
        if codec == Codec.LZ4 and magic > 0:
            lz4_frame.check_header(wrapper[value_at:])
        return _Source(decompress_records(codec, wrapper[value_at:], MAX_DECOMPRESSED, MAX_PIECES), codec)
    except CorruptBatch as error:
        raise _invalid(error.what) from error
    except KafkalogError as error:
        raise BrokerError(ErrorCode.unsupported_compression_type, error.what) from error


def _convert(source: memoryview, messages: npt.NDArray[np.int64]) -> _ConvertedRecords:
    """Write messages as v2 records, after an empty batch header."""
    from kafkalog_broker.storage.append.message_set_kernel import write_records

    batch = bytearray(layout.BATCH_OVERHEAD + len(source))
    out = np.frombuffer(batch, np.uint8)[layout.RECORDS_AT :]
    size, smallest, largest = write_records(np.frombuffer(source.toreadonly(), np.uint8), messages, out)
    del out  # a bytearray with a view cannot be resized
    del batch[layout.RECORDS_AT + size :]
    return _ConvertedRecords(batch, smallest, largest)


def _check_wrapper_offset(data: memoryview, magic: int, messages: npt.NDArray[np.int64]) -> None:
    (wrapper_offset,) = _I64.unpack_from(data)
    if not len(messages):
        raise _invalid("the compressed message contains no messages")
    last = int(messages[-1, MessageColumn.OFFSET])
    if magic and wrapper_offset and wrapper_offset < last:
        raise _invalid(f"the compressed message has offset {wrapper_offset}, below that of its last message, {last}")


def _sealed_batch(
    converted: _ConvertedRecords, messages: npt.NDArray[np.int64], codec: int, config: LogConfig, now_ms: int
) -> EncodedBatch:
    batch = converted.data
    append_time = sets_append_time(config)
    target = target_codec(config.compression_type, codec)
    if target:
        records = compress_records(memoryview(batch)[layout.RECORDS_AT :], target, config)
        batch = batch[: layout.RECORDS_AT] + records
    check_size(len(batch), config)
    fields = header_fields(
        0, len(messages) - 1, len(messages), int(messages[0, MessageColumn.TIMESTAMP]),
        now_ms if append_time else converted.largest_timestamp,
        attributes=target | (layout.ATTRIBUTE_LOG_APPEND_TIME if append_time else 0),
        leader_epoch=layout.NO_LEADER_EPOCH, producer_id=layout.NO_PRODUCER_ID,
        producer_epoch=layout.NO_PRODUCER_EPOCH, base_sequence=layout.NO_SEQUENCE,
    )  # fmt: skip
    seal(batch, 0, len(batch), fields)
    return EncodedBatch.of(batch)


def _invalid(message: str) -> BrokerError:
    return BrokerError(ErrorCode.invalid_record, message)
