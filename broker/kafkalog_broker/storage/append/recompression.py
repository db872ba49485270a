"""Decompression of the records of a batch within bounds, and batches rebuilt with another codec or offset deltas."""

from __future__ import annotations

import threading
import traceback

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.storage.append.record_walk import renumbered
from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format import layout
from kafkalog_spark.format.codecs import CODECS, KAFKA_CODECS
from kafkalog_spark.format.layout import MAX_DECOMPRESSED, Codec
from kafkalog_spark.log.codecs.compress import compress
from kafkalog_spark.log.codecs.decompress import decompress
from kafkalog_spark.log.codecs.output import MAX_PIECES, Output
from kafkalog_spark.log.codecs.scratch import Scratch
from kafkalog_spark.log.write.encoded_batch import seal

PRODUCER = "producer"  # the value of compression.type that keeps a producer's codec
_LEVELS: dict[int, str] = {
    codec: f"compression_{codec.label}_level" for codec in KAFKA_CODECS if CODECS[codec].levels is not None
}
"""Field of LogConfig with the level of a codec."""

_KEPT_SCRATCH = 4 << 20
"""Bytes of the decompression buffer that a thread keeps; most batches decompress to less. A larger buffer belongs to
its caller alone, and is freed with the last reference to the records."""

_threads = threading.local()


def target_codec(compression_type: str, source: int) -> int:
    """Return the codec that compression.type demands for a batch whose producer used the codec `source`."""
    if compression_type == PRODUCER:
        return source
    return Codec.NONE if compression_type == "uncompressed" else Codec[compression_type.upper()]


def unpacked(codec: int, records: memoryview, limit: int = MAX_DECOMPRESSED, pieces: int = MAX_PIECES) -> memoryview:
    """Return the decompressed records, valid until the same thread calls again.

    Raises:
        CorruptBatch: The compressed stream is broken.
        DecompressesTooFar: It has more than `limit` bytes or `pieces` (see `decompress`).
    """
    scratch: Scratch | None = getattr(_threads, "scratch", None)
    if scratch is None:
        scratch = Scratch(64 << 10, most=MAX_DECOMPRESSED)
    _threads.scratch = None  # until it is known how far it has grown
    try:
        end = decompress(codec, records, Output(scratch, 0, limit, pieces=pieces))
    except CorruptBatch as error:
        del scratch
        release_frames(error)
        raise
    if scratch.data.size <= _KEPT_SCRATCH:
        _threads.scratch = scratch
    return scratch.view[:end]


def release_frames(error: BaseException | None) -> None:
    """Drop the local variables of all frames in the tracebacks of `error` and its causes.

    A frame of a decompression holds its buffer of up to MAX_DECOMPRESSED bytes. An error that is part of a reference
    cycle, such as that of an asyncio task, would keep the buffer until the garbage collector runs.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def packed(records: memoryview | bytes, codec: int, config: LogConfig) -> bytes:
    """Compress records with the level that the topic has for the codec."""
    level = getattr(config, _LEVELS[codec], None) if codec in _LEVELS else None
    return compress(Codec(codec), records, level)


def rebuilt(
    batch: bytearray,
    records: memoryview,
    codec: int,
    attributes: int,
    max_timestamp: int,
    config: LogConfig,
    in_sequence: bool,
) -> bytearray:
    """Return a batch with the same records, timestamps, producer and transactional bit.

    Args:
        batch: The batch of the producer.
        records: Its decompressed records.
        codec: Codec of the result.
        attributes: Attributes of the result; the bits of the codec are replaced.
        max_timestamp: Max timestamp of the result, in ms.
        config: Configuration of the topic, for the compression level.
        in_sequence: True if offset deltas are 0, 1, 2 ... already; otherwise the records are renumbered.
    """
    (
        base_offset, _, leader_epoch, magic, _, _, _, base_timestamp, _, producer_id, producer_epoch, base_sequence,
        count,
    ) = layout.BATCH_HEADER.unpack_from(batch)  # fmt: skip
    plain = records if in_sequence else renumbered(records, count, base_timestamp)
    attributes = attributes & ~layout.ATTRIBUTE_CODEC | codec
    made = bytearray(layout.BATCH_OVERHEAD) + packed(plain, codec, config)
    fields = (
        base_offset, 0, leader_epoch, magic, 0, attributes, count - 1, base_timestamp, max_timestamp, producer_id,
        producer_epoch, base_sequence, count,
    )  # fmt: skip
    seal(made, 0, len(made), fields)
    return made
