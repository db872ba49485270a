"""Validation of a producer's v2 batch before it is appended (LogValidator).

Thread-safe, without I/O: it may run in a worker thread before the log assigns offsets and checks the producer. Kafka's
rules, in its order: one v2 batch with base offset 0, no larger than max.message.bytes, with a valid CRC; a record count
that agrees with the offsets; no control batch; well-formed records that follow the rules of the topic (`topic_rules`).
A batch fails as a whole.

Changed are: the max timestamp if the records have another one, the timestamp type of a LogAppendTime topic, the codec
if compression.type asks for another one, and offset deltas that are not 0, 1, 2 ... Only then is the CRC computed
again. Base offset and leader epoch are written by the log; they lie outside the CRC.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.append.recompression import PRODUCER, rebuilt, target_codec, unpacked
from kafkalog_broker.storage.append.record_layouts import RecordColumn
from kafkalog_broker.storage.append.record_walk import RecordFacts, record_columns, walk_records
from kafkalog_broker.storage.append.topic_rules import (
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
_new = tuple.__new__  # BatchHeader(...) takes 3 % of validating and appending a batch longer


def validate_batch(
    data: bytes | memoryview, config: LogConfig, now_ms: int, budget: ValidationBudget = THREAD_BUDGET
) -> EncodedBatch:
    """Check the batch of one partition and return it as it is appended, in memory of its own.

    Bytes after the batch that are less than another batch are dropped.

    Args:
        data: The records field of one partition.
        config: Configuration of the topic.
        now_ms: Time of the broker.
        budget: Limits of the work.

    Raises:
        BrokerError: message_too_large, corrupt_message, invalid_record, unsupported_compression_type.
        InvalidRecords: invalid_record or invalid_timestamp, with the records that break a rule of the topic.
        TakesTooLong: Only with a budget of the event loop: validate the batch in a thread.
    """
    view = memoryview(data)
    size = _size_of_only_batch(view, config)
    (
        base_offset, _, epoch, _, crc, attributes, last_delta, base_timestamp, max_timestamp, producer_id,
        producer_epoch, base_sequence, count,
    ) = layout.BATCH_HEADER.unpack_from(view)  # fmt: skip
    batch = bytearray(view[:size])
    found = crc32c(memoryview(batch)[layout.ATTRIBUTES_AT :])
    if found != crc:
        raise BrokerError(
            ErrorCode.corrupt_message, f"CRC-32C does not match: the header says {crc:#010x}, the bytes {found:#010x}"
        )
    if base_offset:
        raise _invalid(f"the base offset of a batch that a producer sends is 0, this one has {base_offset}")
    if count <= 0 or count != last_delta + 1:
        raise _invalid(f"the header announces {count} records, and {last_delta} as the last one's offset delta")
    if count > MAX_RECORDS:
        raise _invalid(f"the batch has {count} records, at most {MAX_RECORDS} are taken; send smaller batches")
    if attributes & layout.ATTRIBUTE_CONTROL:
        raise _invalid("clients are not allowed to write control records")
    if producer_id >= 0 and base_sequence < 0:
        raise _invalid(f"producer id {producer_id} comes with base sequence {base_sequence}, it must not be negative")
    codec = attributes & layout.ATTRIBUTE_CODEC
    if codec not in KAFKA_CODECS:
        what = f"codec {codec} is unknown, expected {listed(KAFKA_CODECS)}"
        raise BrokerError(ErrorCode.unsupported_compression_type, what)
    try:
        records = memoryview(batch)[layout.RECORDS_AT :]
        if codec:
            records = unpacked(codec, records, budget.decompressed_bytes, budget.pieces)
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
        batch = rebuilt(batch, records, target, new_attributes, timestamp, config, bool(facts.in_sequence))
        check_size(len(batch), config)
        return EncodedBatch.of(batch)
    if timestamp != max_timestamp or append_time:
        _I16.pack_into(batch, layout.ATTRIBUTES_AT, new_attributes)
        _I64.pack_into(batch, layout.MAX_TIMESTAMP_AT, timestamp)
        crc = crc32c(memoryview(batch)[layout.ATTRIBUTES_AT :])
        _U32.pack_into(batch, layout.CRC_AT, crc)
    else:
        new_attributes = attributes
    # EncodedBatch.of would read the same from the bytes again
    header = _new(BatchHeader, (
        0, size, 0, last_delta, _MAGIC, new_attributes, crc, epoch, base_timestamp, timestamp, producer_id,
        producer_epoch, base_sequence, count,
    ))  # fmt: skip
    return EncodedBatch(batch, header)  # type: ignore[arg-type]


def _size_of_only_batch(view: memoryview, config: LogConfig) -> int:
    """Return the size of the only batch in `view`. Raises BrokerError."""
    if len(view) < layout.LOG_OVERHEAD:
        raise _invalid(f"{len(view)} bytes hold no batch")
    (length,) = _I32.unpack_from(view, layout.LENGTH_AT)
    size: int = length + layout.LOG_OVERHEAD
    if len(view) > layout.MAGIC_AT and view[layout.MAGIC_AT] != _MAGIC:
        raise _invalid(f"magic {view[layout.MAGIC_AT]}, only record batches v2 are taken")
    if size < layout.BATCH_OVERHEAD:
        raise BrokerError(
            ErrorCode.corrupt_message, f"a batch of {size} bytes, it has at least {layout.BATCH_OVERHEAD}"
        )
    check_size(size, config)
    if size > len(view):
        raise _invalid(f"the batch has {size} bytes, {len(view)} came")
    rest = view[size:]
    if len(rest) >= layout.LOG_OVERHEAD:  # anything less than a batch is trimmed, as in Kafka
        (length,) = _I32.unpack_from(rest, layout.LENGTH_AT)
        if 0 <= length <= len(rest) - layout.LOG_OVERHEAD:
            raise _invalid("a produce request holds exactly one batch for a partition, here another one follows")
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
    """Raise InvalidRecords if a record breaks a rule of the topic. The records are read again only if one does."""
    append_time_set = bool(attributes & layout.ATTRIBUTE_LOG_APPEND_TIME)
    bounds = timestamp_bounds(config, now_ms)
    is_outside = facts.smallest_timestamp < bounds.smallest or facts.largest_timestamp > bounds.largest
    is_outside = is_outside and facts.smallest_timestamp <= facts.largest_timestamp
    if is_outside or append_time_set or (facts.null_keys and needs_keys(config)):
        columns = record_columns(records, count, base_timestamp)
        check_records(
            columns[:, RecordColumn.TIMESTAMP], columns[:, RecordColumn.KEY_SIZE], config, bounds,
            append_time_set=append_time_set,
        )  # fmt: skip


def _invalid(what: str) -> BrokerError:
    return BrokerError(ErrorCode.invalid_record, what)
