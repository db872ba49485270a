"""What a producer's bytes must be before they go into a log, and what becomes of them (LogValidator).

Pure and thread-safe: it may run in an executor, before the log decides about offsets and producer state. Kafka's rules,
in its order: one v2 batch with base offset 0, no larger than max.message.bytes, with a right CRC; a record count that
agrees with the offsets; no control batch; every record well-formed, with a key if the topic is compacted, and a
timestamp within bounds. Records that break a rule are all listed; the batch fails as a whole.

What is changed: the max timestamp when it is not what the records say, the timestamp type of a LogAppendTime topic,
the codec where compression.type asks for another one, offset deltas that are not 0, 1, 2 ... The CRC is computed again
only then. Base offset and leader epoch are stamped by the log; they lie outside the CRC.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from broker.errors import BrokerError, ErrorCode
from broker.storage.recompression import rebuilt, target_codec, unpacked
from broker.storage.record_walk import RecordFacts, plain_records, walk_records
from kafkalog_spark.errors import CorruptBatch, UnfoldsTooFar
from kafkalog_spark.log import layout
from kafkalog_spark.log.decompress import MAX_DECOMPRESSED
from kafkalog_spark.log.layout import Codec

if TYPE_CHECKING:
    from broker.config.log_config import LogConfig

LOG_APPEND_TIME = "LogAppendTime"
"""The value of message.timestamp.type that makes the broker's clock the timestamp of all records."""

_I16 = struct.Struct(">h")
_U32 = struct.Struct(">I")
_I64 = struct.Struct(">q")
_KNOWN_ATTRIBUTES = 0x7F
_MAGIC = 2


class ValidatedBatch(NamedTuple):
    """One v2 batch that may be appended. Timestamps in ms.

    data: the whole batch in memory of its own; the log stamps base offset and leader epoch into it.
    record_count, max_timestamp, producer_id, producer_epoch, base_sequence, attributes: as its header says.
    log_append_time_ms: the answer to the producer; -1 with CreateTime.
    """

    data: bytearray
    record_count: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    attributes: int
    log_append_time_ms: int = -1

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & layout.ATTRIBUTE_TRANSACTIONAL)

    @property
    def last_sequence(self) -> int:
        """-1 without sequences; 0 follows 2^31-1, within a batch too."""
        if self.base_sequence < 0:
            return layout.NO_SEQUENCE
        return (self.base_sequence + self.record_count - 1) & layout.MAX_INT32


class InvalidRecordErrors(BrokerError):
    """Records of a batch that break a rule. errors: (index in the batch, what is wrong), Kafka's RecordErrors."""

    def __init__(self, code: ErrorCode, errors: Sequence[tuple[int, str]]) -> None:
        shown = "; ".join(f"record {index}: {message}" for index, message in errors[:3])
        super().__init__(code, f"{len(errors)} of the batch's records are refused, the first of them: {shown}")
        self.errors = list(errors)


def validate_batch(
    data: bytes | memoryview,
    config: LogConfig,
    now_ms: int,
    *,
    is_compacted: bool = False,
    unfold_limit: int = MAX_DECOMPRESSED,
) -> ValidatedBatch:
    """Check what a producer sent for one partition, and make of it what goes into the log.

    Raises BrokerError (message_too_large, corrupt_message, invalid_record, invalid_timestamp,
    unsupported_compression_type) and InvalidRecordErrors; UnfoldsTooFar when an `unfold_limit` (bytes) below
    MAX_DECOMPRESSED is passed: that says nothing of the batch. Bytes behind the batch that are no whole batch are left
    off.
    """
    view = memoryview(data)
    size = _checked_size(view, config.max_message_bytes)
    (
        base_offset, _, _, _, crc, attributes, last_delta, base_timestamp, max_timestamp, producer_id, producer_epoch,
        base_sequence, count,
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
    if attributes & layout.ATTRIBUTE_CONTROL:
        raise _invalid("clients are not allowed to write control records")
    if producer_id >= 0 and base_sequence < 0:
        raise _invalid(f"producer id {producer_id} comes with base sequence {base_sequence}, it must not be negative")
    codec = attributes & layout.ATTRIBUTE_CODEC
    if codec > Codec.ZSTD:
        raise BrokerError(ErrorCode.unsupported_compression_type, f"codec {codec} is not known (0 none ... 4 zstd)")
    try:
        records = memoryview(batch)[layout.RECORDS_AT :]
        if codec:
            records = unpacked(codec, records, unfold_limit)
        facts = walk_records(records, count, base_timestamp)
    except CorruptBatch as error:
        if isinstance(error, UnfoldsTooFar) and unfold_limit < MAX_DECOMPRESSED:
            raise
        raise _invalid(error.what) from error
    _check_records(records, count, base_timestamp, attributes, facts, config, now_ms, is_compacted)

    append_time = config.message_timestamp_type == LOG_APPEND_TIME
    timestamp = now_ms if append_time else facts.max_timestamp
    kept = attributes & _KNOWN_ATTRIBUTES & ~layout.ATTRIBUTE_LOG_APPEND_TIME
    wanted = kept | (layout.ATTRIBUTE_LOG_APPEND_TIME if append_time else 0)
    target = target_codec(config.compression_type, codec)
    if target != codec or not facts.in_sequence:
        batch, wanted = rebuilt(batch, records, target, wanted, timestamp, config, bool(facts.in_sequence))
        if len(batch) > config.max_message_bytes:
            raise _too_large(len(batch), config.max_message_bytes)
    elif timestamp != max_timestamp or append_time:
        _I16.pack_into(batch, layout.ATTRIBUTES_AT, wanted)
        _I64.pack_into(batch, layout.MAX_TIMESTAMP_AT, timestamp)
        _U32.pack_into(batch, layout.CRC_AT, crc32c(memoryview(batch)[layout.ATTRIBUTES_AT :]))
    else:
        wanted = attributes
    return ValidatedBatch(
        batch, count, timestamp, producer_id, producer_epoch, base_sequence, wanted, now_ms if append_time else -1
    )


def _checked_size(view: memoryview, max_message_bytes: int) -> int:
    """Size of the one batch in `view`."""
    if len(view) < layout.LOG_OVERHEAD:
        raise _invalid(f"{len(view)} bytes hold no batch")
    (length,) = struct.unpack_from(">i", view, layout.LENGTH_AT)
    size: int = length + layout.LOG_OVERHEAD
    if len(view) > layout.MAGIC_AT and view[layout.MAGIC_AT] != _MAGIC:
        raise _invalid(f"magic {view[layout.MAGIC_AT]}, only record batches v2 are taken")
    if size < layout.BATCH_OVERHEAD:
        raise BrokerError(
            ErrorCode.corrupt_message, f"a batch of {size} bytes, it has at least {layout.BATCH_OVERHEAD}"
        )
    if size > max_message_bytes:
        raise _too_large(size, max_message_bytes)
    if size > len(view):
        raise _invalid(f"the batch has {size} bytes, {len(view)} came")
    if _is_whole_batch(view[size:]):
        raise _invalid("a produce request holds exactly one batch for a partition, here another one follows")
    return size


def _is_whole_batch(rest: memoryview) -> bool:
    """Anything less behind the batch is trimmed, as in Kafka."""
    if len(rest) < layout.LOG_OVERHEAD:
        return False
    (length,) = struct.unpack_from(">i", rest, layout.LENGTH_AT)
    return bool(0 <= length <= len(rest) - layout.LOG_OVERHEAD)


def _check_records(
    records: memoryview,
    count: int,
    base_timestamp: int,
    attributes: int,
    facts: RecordFacts,
    config: LogConfig,
    now_ms: int,
    is_compacted: bool,
) -> None:
    """Raise InvalidRecordErrors for keys and timestamps. The walk has said whether a second look is needed."""
    append_time_set = bool(attributes & layout.ATTRIBUTE_LOG_APPEND_TIME)
    lowest, highest = -(2**63), 2**63 - 1
    if config.message_timestamp_type != LOG_APPEND_TIME:
        lowest = now_ms - config.message_timestamp_before_max_ms
        highest = now_ms + config.message_timestamp_after_max_ms
    out_of_bounds = facts.low <= facts.high and (facts.low < lowest or facts.high > highest)
    if not out_of_bounds and not append_time_set and not (is_compacted and facts.null_keys):
        return
    errors = []
    code = ErrorCode.invalid_record
    for record in plain_records(records, count, base_timestamp):
        if is_compacted and not record.has_key:
            errors.append((record.place, "a compacted topic takes no record without a key"))
        elif append_time_set:
            errors.append((record.place, "a producer does not set the timestamp type to LogAppendTime"))
            code = ErrorCode.invalid_timestamp
        elif record.timestamp != layout.NO_TIMESTAMP and not lowest <= record.timestamp <= highest:
            errors.append(
                (record.place, f"timestamp {record.timestamp} is out of range, it should be within {lowest}, {highest}")
            )
            code = ErrorCode.invalid_timestamp
    raise InvalidRecordErrors(code, errors)


def _invalid(what: str) -> BrokerError:
    return BrokerError(ErrorCode.invalid_record, what)


def _too_large(size: int, limit: int) -> BrokerError:
    return BrokerError(
        ErrorCode.message_too_large, f"a batch of {size} bytes, max.message.bytes of the topic is {limit}"
    )
