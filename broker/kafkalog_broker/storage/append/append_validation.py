"""Validation of a producer's batch before it goes into a log (LogValidator).

Pure and thread-safe: it may run in an executor, before the log decides about offsets and producer state. Kafka's rules,
in its order: one v2 batch with base offset 0, no larger than max.message.bytes, with a valid CRC; a record count that
agrees with the offsets; no control batch; every record well-formed, with a key if the topic is compacted, and a
timestamp within bounds. Of the records that break a rule the first hundred are listed, and how many there are; the
batch fails as a whole. One rule is not Kafka's: a batch holds at most a million records (MAX_RECORDS).

Changed are: the max timestamp when it is not what the records say, the timestamp type of a LogAppendTime topic,
the codec where compression.type asks for another one, offset deltas that are not 0, 1, 2 ... The CRC is computed again
only then. Base offset and leader epoch are stamped by the log; they lie outside the CRC.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from crc32c import crc32c

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.append.kernel_fields import Refusal
from kafkalog_broker.storage.append.recompression import PRODUCER, rebuilt, target_codec, unpacked
from kafkalog_broker.storage.append.record_walk import RecordFacts, TakesTooLong, refused_records, walk_records
from kafkalog_spark.errors import CorruptBatch, DecompressesTooFar
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.codecs import CODECS, KAFKA_CODECS, listed
from kafkalog_spark.format.layout import MAX_DECOMPRESSED, Codec
from kafkalog_spark.log.write.encoded_batch import EncodedBatch

# A batch is validated at once, in the event loop, or in a thread where it would hold up all others.
#
# A hand-over to a thread and back takes 0.1 ms, and several ms when both threads want the interpreter; decompressing
# a batch of the usual size takes less. So a thread gets what may take longer than about 2 ms. Nothing that the batch
# says of itself is believed but its number of records: more than that many are not walked over.
#
# Measured on one core: records are walked over in 10 to 20 ns each, and twice that when some are refused or renumbered;
# a header takes 3 ns, and a megabyte has room for half a million of them. How fast codecs are: format/codecs.py.

AT_ONCE: dict[int, int] = {codec: facts.bytes_in_event_loop for codec, facts in CODECS.items()}
"""Decompressed bytes of a batch that is validated in the event loop."""

RECORDS_AT_ONCE = 50_000  # records of a batch that is validated in the event loop
PIECES_AT_ONCE = 200  # blocks or members of a compressed batch: gzip takes up to 10 us for each, the others 1 to 2
PACKED_AT_ONCE = 64 << 10
"""Decompressed bytes of a batch that is compressed again, which is ten times the work: gzip packs 75 MB/s."""
USUAL_RATIO = 4  # to how many times its size a batch decompresses, as long as it is not known

_I32 = struct.Struct(">i")


def bytes_at_once(batch: memoryview) -> int:
    """How far a batch may decompress in the event loop, in bytes; 0 when a thread should have it at once."""
    if len(batch) < layout.RECORDS_AT:
        return AT_ONCE[Codec.NONE]
    codec = batch[layout.ATTRIBUTES_AT + 1] & layout.ATTRIBUTE_CODEC
    if not codec and len(batch) <= RECORDS_AT_ONCE:  # no room for more records than that, whatever it says
        return AT_ONCE[Codec.NONE]
    limit = AT_ONCE.get(codec, AT_ONCE[Codec.NONE])  # one that is not known is refused before its records are looked at
    (count,) = _I32.unpack_from(batch, layout.RECORD_COUNT_AT)
    usual = len(batch) * USUAL_RATIO if codec else len(batch)
    return limit if usual <= limit and count <= RECORDS_AT_ONCE else 0


LOG_APPEND_TIME = "LogAppendTime"
"""The value of message.timestamp.type that makes the broker's clock the timestamp of all records."""
MAX_RECORDS = 1_000_000
"""Records of one batch. librdkafka makes none of more (batch.num.messages), nor can Java's producer with 64 MB of
records of 67 bytes and more; seven bytes are enough for a record, so 64 MB would hold 9.5 million."""
MAX_RECORD_ERRORS = 100  # records that are listed in an answer. Kafka lists all: 65 MB for a million.
MOST_PIECES = 10_000
"""Blocks or members of a compressed batch. Clients fill blocks of 32 KB and more, Java's before 1.0 of 1 KB (snappy).
Each costs a microsecond or two of Python, however small it is, for which all other threads wait."""

_I16 = struct.Struct(">h")
_U32 = struct.Struct(">I")
_I64 = struct.Struct(">q")
_KNOWN_ATTRIBUTES = 0x7F
_MAGIC = 2
_new = tuple.__new__  # BatchHeader(...) takes 3 % of validating and appending a batch longer


class InvalidRecordErrors(BrokerError):
    """Records of a batch that break a rule. errors: (index in the batch, reason) of the first ones; total: of all."""

    def __init__(self, code: ErrorCode, errors: Sequence[tuple[int, str]], total: int) -> None:
        shown = "; ".join(f"record {index}: {message}" for index, message in errors[:3])
        more = f" ({total - len(errors)} more than are listed)" if total > len(errors) else ""
        super().__init__(code, f"{total} of the batch's records are refused{more}, the first of them: {shown}")
        self.errors = list(errors)
        self.total = total


def validate_batch(
    data: bytes | memoryview, config: LogConfig, now_ms: int, *, at_once: int | None = None
) -> EncodedBatch:
    """Check what a producer sent for one partition, and make of it what goes into the log, in memory of its own. Bytes
    after it that are no whole batch are left off. at_once: bytes of decompressed records that the caller, the event
    loop, has the time for (`bytes_at_once`); None in a thread. Raises BrokerError (message_too_large, corrupt_message,
    invalid_record, invalid_timestamp, unsupported_compression_type) and InvalidRecordErrors; with `at_once`
    TakesTooLong."""
    view = memoryview(data)
    size = _checked_size(view, config.max_message_bytes)
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
        raise BrokerError(
            ErrorCode.unsupported_compression_type,
            f"compression codec {codec} is not known; the known ones are {listed(KAFKA_CODECS)}",
        )
    try:
        records = memoryview(batch)[layout.RECORDS_AT :]
        if codec and at_once is not None:
            records = unpacked(codec, records, at_once, PIECES_AT_ONCE)
        elif codec:
            records = unpacked(codec, records, MAX_DECOMPRESSED, MOST_PIECES)
        facts = walk_records(records, count, base_timestamp, at_once=at_once is not None)
    except CorruptBatch as error:
        if isinstance(error, DecompressesTooFar) and at_once is not None:
            raise TakesTooLong from None
        raise _invalid(error.what) from error
    _check_records(records, count, base_timestamp, attributes, facts, config, now_ms)

    append_time = config.message_timestamp_type == LOG_APPEND_TIME
    timestamp = now_ms if append_time else facts.max_timestamp
    kept = attributes & _KNOWN_ATTRIBUTES & ~layout.ATTRIBUTE_LOG_APPEND_TIME
    wanted = kept | (layout.ATTRIBUTE_LOG_APPEND_TIME if append_time else 0)
    target = codec if config.compression_type == PRODUCER else target_codec(config.compression_type, codec)
    if target != codec or not facts.in_sequence:
        if at_once is not None and target and len(records) > PACKED_AT_ONCE:
            raise TakesTooLong
        batch = rebuilt(batch, records, target, wanted, timestamp, config, bool(facts.in_sequence))
        if len(batch) > config.max_message_bytes:
            raise _too_large(len(batch), config.max_message_bytes)
        return EncodedBatch.of(batch)
    if timestamp != max_timestamp or append_time:
        _I16.pack_into(batch, layout.ATTRIBUTES_AT, wanted)
        _I64.pack_into(batch, layout.MAX_TIMESTAMP_AT, timestamp)
        crc = crc32c(memoryview(batch)[layout.ATTRIBUTES_AT :])
        _U32.pack_into(batch, layout.CRC_AT, crc)
    else:
        wanted = attributes
    # EncodedBatch.of would read the same from the bytes again
    header = _new(BatchHeader, (
        0, size, 0, last_delta, _MAGIC, wanted, crc, epoch, base_timestamp, timestamp, producer_id, producer_epoch,
        base_sequence, count,
    ))  # fmt: skip
    return EncodedBatch(batch, header)  # type: ignore[arg-type]


def _checked_size(view: memoryview, max_message_bytes: int) -> int:
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
    if size > max_message_bytes:
        raise _too_large(size, max_message_bytes)
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
    """Raise InvalidRecordErrors for keys and timestamps. The walk has said whether a second look is needed."""
    append_time_set = bool(attributes & layout.ATTRIBUTE_LOG_APPEND_TIME)
    lowest, highest = layout.MIN_INT64, layout.MAX_INT64
    if config.message_timestamp_type != LOG_APPEND_TIME:
        lowest = now_ms - config.message_timestamp_before_max_ms
        highest = now_ms + config.message_timestamp_after_max_ms
    out_of_bounds = facts.low <= facts.high and (facts.low < lowest or facts.high > highest)
    if not out_of_bounds and not append_time_set and not (facts.null_keys and config.is_compacted):
        return
    first, total, timestamps = refused_records(
        records, count, base_timestamp, max(lowest, layout.MIN_INT64), min(highest, layout.MAX_INT64),
        needs_keys=config.is_compacted, append_time_set=append_time_set, most=MAX_RECORD_ERRORS,
    )  # fmt: skip
    texts = {
        Refusal.NO_KEY: "a compacted topic takes no record without a key",
        Refusal.APPEND_TIME_SET: "a producer does not set the timestamp type to LogAppendTime",
        Refusal.TIMESTAMP: f"timestamp {{timestamp}} is out of range, it should be within {lowest}, {highest}",
    }
    errors = [(index, texts[rule].format(timestamp=timestamp)) for index, rule, timestamp in first]
    code = ErrorCode.invalid_timestamp if timestamps else ErrorCode.invalid_record
    raise InvalidRecordErrors(code, errors, total)


def _invalid(what: str) -> BrokerError:
    return BrokerError(ErrorCode.invalid_record, what)


def _too_large(size: int, limit: int) -> BrokerError:
    return BrokerError(
        ErrorCode.message_too_large, f"a batch of {size} bytes, max.message.bytes of the topic is {limit}"
    )
