"""Conversion of message sets v0 and v1 (Produce 0 to 2) into the v2 batch that goes into the log.

Pure, for a thread. Kafka's rules (LogValidator, LegacyRecord), in which a plain message is a batch of its own, and a
compressed one, a wrapper, stands alone:

- each message is whole, no larger than max.message.bytes, and its CRC is valid; one cut short at the end is left off
- all have one magic; the messages in a wrapper have the wrapper's, valid CRCs, and are not compressed again
- each has a key where the topic is compacted, a timestamp within bounds, and CreateTime
- a wrapper v1 has the offset of its last message, or 0, as some releases of librdkafka left it

The result is one v2 batch with the wrapper's codec (or compression.type), in which the first message's timestamp is the
base timestamp, -1 for v0. Offsets of producers mean nothing here. As any batch, it must fit into max.message.bytes.

A negative size is INVALID_FETCH_SIZE, the protocol guide's InvalidMessageSize (4), where later Kafkas say
CORRUPT_MESSAGE. What Kafka answers with UNKNOWN_SERVER_ERROR (an impossible key size, a broken gzip stream, codec 5)
has a code here that says what is wrong.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.append.append_validation import LOG_APPEND_TIME, MAX_RECORDS, MOST_PIECES, validate_batch
from kafkalog_broker.storage.append.kernel_fields import MessageColumn, SetFault
from kafkalog_broker.storage.append.recompression import check_lz4_header, packed, target_codec, unpacked
from kafkalog_broker.storage.append.record_walk import load_kernel
from kafkalog_spark.errors import CorruptBatch, KafkalogError
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import wrapper_value_at
from kafkalog_spark.format.codecs import CODECS, KAFKA_CODECS, listed
from kafkalog_spark.format.layout import MAX_DECOMPRESSED, NO_TIMESTAMP, Codec
from kafkalog_spark.log.write.encoded_batch import EncodedBatch, header_fields, seal

_OFFSET_SIZE_CRC = struct.Struct(">qiI")
_V2 = 2
_CORRUPT, _INVALID = ErrorCode.corrupt_message, ErrorCode.invalid_record
_FAULTS = {
    SetFault.NEGATIVE_SIZE: (ErrorCode.invalid_fetch_size, "has a negative size"),
    SetFault.SMALL_SIZE: (_CORRUPT, "is smaller than a message can be"),
    SetFault.UNKNOWN_MAGIC: (_CORRUPT, "has a magic byte that is not known"),
    SetFault.OTHER_MAGIC: (_INVALID, "has another magic byte than the first one, or the wrapper that it is in"),
    SetFault.TOO_LARGE: (ErrorCode.message_too_large, "is larger than max.message.bytes of the topic"),
    SetFault.CRC: (_CORRUPT, "has a CRC that does not match its bytes"),
    SetFault.COMPRESSED: (_INVALID, "is compressed: a compressed message stands alone, and not in another one"),
    SetFault.FIELDS: (_INVALID, "has a key or value that does not lie in it"),
    SetFault.APPEND_TIME_SET: (ErrorCode.invalid_timestamp, "has the timestamp type LogAppendTime, which brokers set"),
    SetFault.TOO_MANY: (_INVALID, f"is one more than the {MAX_RECORDS} that are taken; send smaller sets"),
}


def validate_message_set(data: memoryview, config: LogConfig, now_ms: int) -> EncodedBatch | None:
    """Check what came for one partition, and make of it what goes into the log; None where there is no whole message. A
    v2 batch is validated as such. Raises BrokerError: corrupt_message, invalid_fetch_size, invalid_record,
    invalid_timestamp, message_too_large, unsupported_compression_type. Loads Numba."""
    if len(data) > layout.MAGIC_AT and data[layout.MAGIC_AT] == _V2:
        return validate_batch(data, config, now_ms)
    magic = data[layout.MAGIC_AT] if len(data) > layout.MAGIC_AT else 0
    size = None  # of a compressed message, whole; it stands alone
    if len(data) > layout.LEGACY_ATTRIBUTES_AT and data[layout.LEGACY_ATTRIBUTES_AT] & layout.ATTRIBUTE_CODEC:
        announced = int(struct.unpack_from(">i", data, layout.LENGTH_AT)[0]) + layout.LOG_OVERHEAD
        if magic < _V2 and layout.LEGACY_MIN_SIZE[0] <= announced <= len(data):
            size = announced
    if size is None:
        codec, source = int(Codec.NONE), data
    else:
        _check_wrapper(data, size, magic, config)
        codec, source = _opened(data[:size], magic)
    most_bytes = config.max_message_bytes if size is None else MAX_DECOMPRESSED
    messages, fault = _messages_in(source, magic, most_bytes, is_inner=size is not None)
    made = bytearray(layout.BATCH_OVERHEAD + len(source))
    written, low, high = _write_records(source, messages, made)
    del made[layout.RECORDS_AT + written :]
    lowest, highest = 0, layout.MAX_INT64
    if config.message_timestamp_type != LOG_APPEND_TIME:
        lowest = max(now_ms - config.message_timestamp_before_max_ms, lowest)
        highest = min(now_ms + config.message_timestamp_after_max_ms, highest)
    if config.is_compacted or (magic and (low < lowest or high > highest)):
        _check_messages(messages, lowest, highest, config.is_compacted)
    if fault:
        raise _fault(fault, len(messages))
    if size is not None:
        wrapper_offset = struct.unpack_from(">q", data)[0]
        if not len(messages):
            raise BrokerError(_INVALID, "a compressed message holds no message")
        if magic and wrapper_offset and wrapper_offset < (last := messages[-1, MessageColumn.OFFSET]):
            raise BrokerError(
                _INVALID,
                f"a compressed message has the offset {wrapper_offset}, below that of its last message, {last}",
            )
    return _batch(made, high, messages, codec, config, now_ms) if len(messages) else None


def _check_wrapper(data: memoryview, size: int, magic: int, config: LogConfig) -> None:
    _, _, crc = _OFFSET_SIZE_CRC.unpack_from(data)
    if size > config.max_message_bytes:
        raise _fault(SetFault.TOO_LARGE, 0)
    if zlib.crc32(data[layout.MAGIC_AT : size]) != crc:
        raise _fault(SetFault.CRC, 0)
    if size < layout.LEGACY_MIN_SIZE[magic]:
        raise _fault(SetFault.FIELDS, 0)
    if magic and data[layout.LEGACY_ATTRIBUTES_AT] & layout.ATTRIBUTE_LOG_APPEND_TIME:
        raise _fault(SetFault.APPEND_TIME_SET, 0)
    rest = data[size:]
    if len(rest) >= layout.LOG_OVERHEAD:
        (length,) = struct.unpack_from(">i", rest, layout.LENGTH_AT)
        if 0 <= length <= len(rest) - layout.LOG_OVERHEAD:
            raise BrokerError(_INVALID, "a compressed message stands alone, here another one follows")


def _opened(wrapper: memoryview, magic: int) -> tuple[int, memoryview]:
    """Its codec, and the message set in it; good until the same thread opens another one."""
    codec = wrapper[layout.LEGACY_ATTRIBUTES_AT] & layout.ATTRIBUTE_CODEC
    if codec not in KAFKA_CODECS:
        known = f"messages v0 and v1 have {listed(codec for codec in KAFKA_CODECS if CODECS[codec].in_message_sets)}"
        raise BrokerError(ErrorCode.unsupported_compression_type, f"codec {codec} is not known: {known}")
    if not CODECS[Codec(codec)].in_message_sets:
        raise BrokerError(_INVALID, f"messages v0 and v1 are not compressed with {Codec(codec).label}: send v2 batches")
    try:
        value_at = wrapper_value_at(wrapper, magic)
        if codec == Codec.LZ4 and magic > 0:
            check_lz4_header(wrapper[value_at:])
        return codec, unpacked(codec, wrapper[value_at:], MAX_DECOMPRESSED, MOST_PIECES)
    except CorruptBatch as error:
        raise BrokerError(_INVALID, error.what) from error
    except KafkalogError as error:
        raise BrokerError(ErrorCode.unsupported_compression_type, error.what) from error


def _messages_in(
    source: memoryview, magic: int, most_bytes: int, *, is_inner: bool, checks_crc: bool = True
) -> tuple[npt.NDArray[np.int64], SetFault]:
    """int64[n, len(MessageColumn)] of the messages before the first fault, or one that is cut short. Loads Numba."""
    load_kernel()  # in its way: nobody waits for LLVM
    from kafkalog_broker.storage.append.message_set_kernel import find_messages
    from kafkalog_spark.kernels.primitives import CRC32_TABLE

    messages = np.empty((min(len(source) // layout.LEGACY_MIN_SIZE[0], MAX_RECORDS), len(MessageColumn)), np.int64)
    count, fault = find_messages(
        np.frombuffer(source.toreadonly(), np.uint8), 0, len(source), magic, 0, layout.MIN_INT64, most_bytes,
        int(is_inner), CRC32_TABLE if checks_crc else CRC32_TABLE[:0], messages,
    )  # fmt: skip
    return messages[:count], SetFault(fault)


def _write_records(source: memoryview, messages: npt.NDArray[np.int64], made: bytearray) -> tuple[int, int, int]:
    """(bytes, smallest timestamp, ms, largest one)."""
    from kafkalog_broker.storage.append.message_set_kernel import write_records

    out = np.frombuffer(made, np.uint8)[layout.RECORDS_AT :]
    size, low, high = write_records(np.frombuffer(source.toreadonly(), np.uint8), messages, out)
    return size, low, high


def _check_messages(messages: npt.NDArray[np.int64], lowest: int, highest: int, is_compacted: bool) -> None:
    timestamps, without_key = messages[:, MessageColumn.TIMESTAMP], 0
    bad = timestamps != NO_TIMESTAMP
    if is_compacted:
        has_key = messages[:, MessageColumn.KEY_SIZE] >= 0
        without_key = len(messages) - int(has_key.sum())
        bad &= has_key
    bad &= (timestamps < lowest) | (timestamps > highest)
    if count := int(bad.sum()):
        raise BrokerError(
            ErrorCode.invalid_timestamp, f"{count} messages have a timestamp that is not within {lowest}, {highest}"
        )
    if without_key:
        raise BrokerError(_INVALID, f"{without_key} messages have no key, and a compacted topic takes none without")


def _batch(
    made: bytearray, newest: int, messages: npt.NDArray[np.int64], codec: int, config: LogConfig, now_ms: int
) -> EncodedBatch:
    append_time = config.message_timestamp_type == LOG_APPEND_TIME
    target = target_codec(config.compression_type, codec)
    if target:
        records = packed(memoryview(made)[layout.RECORDS_AT :], target, config)
        made = made[: layout.RECORDS_AT] + records
    if len(made) > config.max_message_bytes:
        raise BrokerError(
            ErrorCode.message_too_large,
            f"a batch of {len(made)} bytes when the set is in one, max.message.bytes of the topic is "
            f"{config.max_message_bytes}",
        )
    fields = header_fields(
        0, len(messages) - 1, len(messages), int(messages[0, MessageColumn.TIMESTAMP]),
        now_ms if append_time else newest,
        attributes=target | (layout.ATTRIBUTE_LOG_APPEND_TIME if append_time else 0),
        leader_epoch=layout.NO_LEADER_EPOCH, producer_id=layout.NO_PRODUCER_ID,
        producer_epoch=layout.NO_PRODUCER_EPOCH, base_sequence=layout.NO_SEQUENCE,
    )  # fmt: skip
    seal(made, 0, len(made), fields)
    return EncodedBatch.of(made)


def _fault(fault: SetFault, message: int) -> BrokerError:
    code, what = _FAULTS[fault]
    return BrokerError(code, f"message {message} of the set {what}")


def inner_messages(payload: memoryview, magic: int, wrapper_offset: int) -> Iterator[tuple[int, int]]:
    """(offset, timestamp) of each message of an uncompressed set in a wrapper, for ListOffsets: CRCs are not checked.
    v0: offsets are the log's. v1: they count from the first one, and the last has the wrapper's (KIP-31). A message cut
    short at the end is left off, as in Kafka (DeepRecordsIterator). Raises CorruptBatch. Loads Numba."""
    messages, fault = _messages_in(payload, magic, MAX_DECOMPRESSED, is_inner=True, checks_crc=False)
    if fault or not len(messages):
        raise CorruptBatch(
            f"in a wrapper, {_fault(fault, len(messages)).what}" if fault else "a wrapper without a message"
        )
    offsets = messages[:, MessageColumn.OFFSET]
    if magic and wrapper_offset:  # some librdkafka releases left the wrapper's offset at 0
        if wrapper_offset < offsets[-1]:
            raise CorruptBatch(f"offset {wrapper_offset} of a wrapper is below that of its last message")
        offsets += wrapper_offset - offsets[-1]
    return zip(offsets.tolist(), messages[:, MessageColumn.TIMESTAMP].tolist(), strict=True)
