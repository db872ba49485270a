"""Validation of a producer's v2 batch before it is appended (Kafka: `LogValidator`).

Thread-safe, without I/O: it may run on a worker thread before the log assigns offsets and checks the producer. Kafka's
rules, in its order: there is exactly one v2 batch, with base offset 0 and a valid CRC, no larger than
max.message.bytes; its record count agrees with its offsets; it is no control batch; its records are well-formed and
follow the rules of the topic (`topic_rules`). If one rule is broken, the whole batch is refused.

Four things are corrected: a max timestamp that is not that of the records, the timestamp type of a LogAppendTime topic,
a codec other than compression.type demands, and offset deltas that are not 0, 1, 2 ... Only then is the CRC computed
again. The log writes base offset and leader epoch later; the CRC does not cover them.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.append.decompression import decompress_records
from kafkalog_broker.storage.append.recompression import PRODUCER, rebuild_batch, target_codec
from kafkalog_broker.storage.append.record_layouts import RecordColumn
from kafkalog_broker.storage.append.record_walk import RecordFacts, record_columns, walk_records
from kafkalog_broker.storage.append.topic_rules import (
    are_timestamps_allowed,
    check_records,
    check_size,
    needs_keys,
    sets_append_time,
    timestamp_bounds,
)
from kafkalog_broker.storage.append.validation_budget import (
    MAX_RECORDS,
    THREAD_BUDGET,
    TakesTooLong,
    ValidationBudget,
)
from kafkalog_spark.errors import CorruptBatch, DecompressesTooFar
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.codecs import KAFKA_CODECS, listed
from kafkalog_spark.log.write.encoded_batch import EncodedBatch

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_U32 = struct.Struct(">I")
_I64 = struct.Struct(">q")
_KNOWN_ATTRIBUTES = 0x7F
_MAGIC = 2
_new_tuple = tuple.__new__  # creates BatchHeader without its constructor, which is slower


def validate_batch(
    data: bytes | memoryview, config: LogConfig, now_ms: int, budget: ValidationBudget = THREAD_BUDGET
) -> EncodedBatch:
    """Check the batch of one partition and return a copy to append.

    Bytes after the batch are ignored, unless they contain another batch.

    Args:
        data: Records of one partition in a Produce request.
        config: Configuration of the topic.
        now_ms: Current time.
        budget: Limits on the work.

    Raises:
        BrokerError: message_too_large, corrupt_message, invalid_record, unsupported_compression_type.
        InvalidRecords: invalid_record or invalid_timestamp, with the records that break a rule of the topic.
        TakesTooLong: Only with a budget of the event loop. The caller then validates the batch on a worker thread.
    """
    view = memoryview(data)
    size = _size_of_only_batch(view, config)
    (
        base_offset, _, epoch, _, crc, attributes, last_delta, base_timestamp, max_timestamp, producer_id,
        producer_epoch, base_sequence, count,
    ) = layout.BATCH_HEADER.unpack_from(view)  # fmt: skip
    batch = bytearray(view[:size])
    actual_crc = crc32c(memoryview(batch)[layout.ATTRIBUTES_AT :])
    if actual_crc != crc:
        raise BrokerError(
            ErrorCode.corrupt_message,
            f"CRC-32C does not match: the header says {crc:#010x}, the bytes {actual_crc:#010x}",
        )
    if base_offset:
        raise _invalid(f"the base offset is {base_offset}, expected 0")
    if count <= 0 or count != last_delta + 1:
        raise _invalid(f"the header has {count} records and last offset delta {last_delta}, expected {count - 1}")
    if count > MAX_RECORDS:
        raise _invalid(f"the batch has {count} records, at most {MAX_RECORDS} are allowed; send smaller batches")
    if attributes & layout.ATTRIBUTE_CONTROL:
        raise _invalid("clients are not allowed to write control records")
    if producer_id >= 0 and base_sequence < 0:
        raise _invalid(f"the batch of producer id {producer_id} has base sequence {base_sequence}, expected at least 0")
    codec = attributes & layout.ATTRIBUTE_CODEC
    if codec not in KAFKA_CODECS:
        message = f"codec {codec} is unknown, expected {listed(KAFKA_CODECS)}"
        raise BrokerError(ErrorCode.unsupported_compression_type, message)
    try:
        records = memoryview(batch)[layout.RECORDS_AT :]
        if codec:
            records = decompress_records(codec, records, budget.decompressed_bytes, budget.pieces)
        facts = walk_records(records, count, base_timestamp, in_event_loop=budget.in_event_loop)
    except CorruptBatch as error:
        if isinstance(error, DecompressesTooFar) and budget.in_event_loop:
            raise TakesTooLong from None
        raise _invalid(error.what) from error
    _check_records(records, count, base_timestamp, attributes, facts, config, now_ms)

    append_time = sets_append_time(config)
    timestamp = now_ms if append_time else facts.max_timestamp
    kept = attributes & _KNOWN_ATTRIBUTES & ~layout.ATTRIBUTE_LOG_APPEND_TIME
    new_attributes = kept | (layout.ATTRIBUTE_LOG_APPEND_TIME if append_time else 0)
    target = codec if config.compression_type == PRODUCER else target_codec(config.compression_type, codec)
    if target != codec or not facts.in_sequence:
        if target and len(records) > budget.recompressed_bytes:
            raise TakesTooLong
        batch = rebuild_batch(batch, records, target, new_attributes, timestamp, config, bool(facts.in_sequence))
        check_size(len(batch), config)
        return EncodedBatch.of(batch)
    if timestamp != max_timestamp or append_time:
        _I16.pack_into(batch, layout.ATTRIBUTES_AT, new_attributes)
        _I64.pack_into(batch, layout.MAX_TIMESTAMP_AT, timestamp)
        crc = crc32c(memoryview(batch)[layout.ATTRIBUTES_AT :])
        _U32.pack_into(batch, layout.CRC_AT, crc)
    else:
        new_attributes = attributes
    # EncodedBatch.of would parse the same fields from the bytes again.
    header = _new_tuple(BatchHeader, (
        0, size, 0, last_delta, _MAGIC, new_attributes, crc, epoch, base_timestamp, timestamp, producer_id,
        producer_epoch, base_sequence, count,
    ))  # fmt: skip
    return EncodedBatch(batch, header)  # type: ignore[arg-type]


def _size_of_only_batch(view: memoryview, config: LogConfig) -> int:
    """Return the size of the only batch in `view`. Raises BrokerError."""
    if len(view) < layout.LOG_OVERHEAD:
        raise _invalid(f"the records have {len(view)} bytes, fewer than the header of a batch")
    (length,) = _I32.unpack_from(view, layout.LENGTH_AT)
    size: int = length + layout.LOG_OVERHEAD
    if len(view) > layout.MAGIC_AT and view[layout.MAGIC_AT] != _MAGIC:
        raise _invalid(f"the batch has magic {view[layout.MAGIC_AT]}, expected {_MAGIC}")
    if size < layout.BATCH_OVERHEAD:
        raise BrokerError(
            ErrorCode.corrupt_message,
            f"the batch has {size} bytes by its header, expected at least {layout.BATCH_OVERHEAD}",
        )
    check_size(size, config)
    if size > len(view):
        raise _invalid(f"the batch has {size} bytes by its header, but only {len(view)} were received")
    rest = view[size:]
    if len(rest) >= layout.LOG_OVERHEAD:  # a cut batch is ignored, as in Kafka
        (length,) = _I32.unpack_from(rest, layout.LENGTH_AT)
        if 0 <= length <= len(rest) - layout.LOG_OVERHEAD:
            raise _invalid("another batch follows; a Produce request must have exactly one batch for a partition")
    return size


def _check_records(
    records: memoryview,
    count: int,
    base_timestamp: int,
    attributes: int,
    facts: RecordFacts,
    config: LogConfig,
    now_ms: int,
) -> None:
    """Raise InvalidRecords if a record breaks a rule of the topic. The records are walked again only in that case."""
    has_log_append_time = bool(attributes & layout.ATTRIBUTE_LOG_APPEND_TIME)
    if (
        has_log_append_time
        or not are_timestamps_allowed(facts.smallest_timestamp, facts.largest_timestamp, config, now_ms)
        or (facts.null_keys and needs_keys(config))
    ):
        columns = record_columns(records, count, base_timestamp)
        check_records(
            columns[:, RecordColumn.TIMESTAMP], columns[:, RecordColumn.KEY_SIZE], config,
            timestamp_bounds(config, now_ms), has_log_append_time=has_log_append_time,
        )  # fmt: skip


def _invalid(message: str) -> BrokerError:
    return BrokerError(ErrorCode.invalid_record, message)
