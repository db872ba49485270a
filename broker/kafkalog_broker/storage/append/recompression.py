"""Recompression of a producer's batch: the codec that a topic demands, and a batch with that codec."""

from __future__ import annotations

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.storage.append.record_walk import renumbered
from kafkalog_spark.format import layout
from kafkalog_spark.format.codecs import CODECS, KAFKA_CODECS
from kafkalog_spark.format.layout import Codec
from kafkalog_spark.log.codecs.compress import compress
from kafkalog_spark.log.write.encoded_batch import seal

PRODUCER = "producer"  # value of compression.type that keeps the producer's codec
_LEVELS: dict[int, str] = {
    codec: f"compression_{codec.label}_level" for codec in KAFKA_CODECS if CODECS[codec].levels is not None
}
"""Field of LogConfig with the compression level, by codec."""


def target_codec(compression_type: str, source: int) -> int:
    """Return the codec that compression.type demands for a batch whose producer used the codec `source`."""
    if compression_type == PRODUCER:
        return source
    return Codec.NONE if compression_type == "uncompressed" else Codec[compression_type.upper()]


def compress_records(records: memoryview | bytes, codec: int, config: LogConfig) -> bytes:
    """Compress records with the compression level that the topic's configuration has for the codec."""
    level = getattr(config, _LEVELS[codec], None) if codec in _LEVELS else None
    return compress(Codec(codec), records, level)


def rebuild_batch(
    batch: bytearray,
    records: memoryview,
    codec: int,
    attributes: int,
    max_timestamp: int,
    config: LogConfig,
    in_sequence: bool,
) -> bytearray:
    """Return a copy of a batch with another codec, and with offset deltas 0, 1, 2 ...

    Args:
        batch: The producer's batch.
        records: Its decompressed records.
        codec: Codec of the copy.
        attributes: Attributes of the copy; their codec bits are ignored.
        max_timestamp: Max timestamp of the copy, in ms.
        config: Configuration of the topic, for the compression level.
        in_sequence: True if the offset deltas are 0, 1, 2 ... already; otherwise the records are renumbered.
    """
    (
        base_offset, _, leader_epoch, magic, _, _, _, base_timestamp, _, producer_id, producer_epoch, base_sequence,
        count,
    ) = layout.BATCH_HEADER.unpack_from(batch)  # fmt: skip
    plain = records if in_sequence else renumbered(records, count, base_timestamp)
    attributes = attributes & ~layout.ATTRIBUTE_CODEC | codec
    copy = bytearray(layout.BATCH_OVERHEAD) + compress_records(plain, codec, config)
    fields = (
        base_offset, 0, leader_epoch, magic, 0, attributes, count - 1, base_timestamp, max_timestamp, producer_id,
        producer_epoch, base_sequence, count,
    )  # fmt: skip
    seal(copy, 0, len(copy), fields)
    return copy
