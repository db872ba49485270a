"""Compress the records of a batch, in the framing that Kafka's brokers and clients accept."""

from __future__ import annotations

from kafkalog_spark.errors import InvalidRecord
from kafkalog_spark.format.codecs import compression_level
from kafkalog_spark.format.layout import MAX_DECOMPRESSED, Codec
from kafkalog_spark.log.codecs.functions import CODEC_FUNCTIONS


def compress(codec: Codec, data: bytes | memoryview, level: int | None = None) -> bytes:
    """Return the records of one batch, compressed and framed. Thread-safe.

    Args:
        codec: NONE returns a copy.
        data: Encoded records.
        level: None for the codec's default.

    Raises:
        ValueError: If Kafka refuses the level.
    """
    level = compression_level(codec, level)
    if codec == Codec.NONE:
        return bytes(data)
    functions = CODEC_FUNCTIONS[codec]
    return functions.compress(data) if level is None else functions.compress(data, level)


def check_decompressed(size: int, offset: int | None = None) -> None:
    """Raise InvalidRecord if readers would refuse to decompress a batch with `size` bytes of records."""
    if size > MAX_DECOMPRESSED:
        raise InvalidRecord(
            f"a compressed batch of {size} bytes of records would be written, and readers refuse to decompress more "
            f"than {MAX_DECOMPRESSED} (maxDecompressedBatchBytes)",
            offset=offset,
            hint="make the record or batch.size smaller, or write with compression.type=none, which has no such limit",
        )
