"""Decompress the records of a batch, in every framing that Kafka's clients and brokers have written."""

from __future__ import annotations

from kafkalog_spark.errors import CorruptBatch, UnsupportedFormat
from kafkalog_spark.format.codecs import listed
from kafkalog_spark.format.layout import Codec
from kafkalog_spark.log.codecs.functions import CODEC_FUNCTIONS
from kafkalog_spark.log.codecs.output import Output

_FUNCTIONS = {int(codec): functions for codec, functions in CODEC_FUNCTIONS.items()}


def decompress(codec: int, source: memoryview, output: Output) -> int:
    """Decompress `source` into `output`. Thread-safe, if each thread has its own Output.

    Returns:
        The position after the last byte in the output's scratch buffer.

    Raises:
        CorruptBatch: If the stream is broken.
        DecompressesTooFar: If the output's limits are exceeded.
        UnsupportedFormat: If the codec is unknown, or NONE.
    """
    functions = _FUNCTIONS.get(codec)
    if functions is None:
        raise UnsupportedFormat(f"compression codec {codec} is not known; the known ones are {listed(Codec)}")
    try:
        functions.decompress(source, output)
    except CorruptBatch:
        raise
    except functions.stream_errors as error:
        raise CorruptBatch(f"cannot be decompressed ({Codec(codec).label}): {error}") from error
    return output.at
