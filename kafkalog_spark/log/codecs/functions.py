"""Table of the functions of each codec. The codecs' names and levels are in format/codecs.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kafkalog_spark.format.layout import Codec
from kafkalog_spark.log.codecs import gzip_codec, lz4_codec, snappy_codec, zstd_codec
from kafkalog_spark.log.codecs.output import Output


@dataclass(frozen=True, slots=True)
class CodecFunctions:
    """Functions of one codec.

    Attributes:
        compress: Takes the data, and a level if the codec has levels.
        decompress: Decompresses all of its input into an Output.
        stream_errors: Exceptions of the codec's library for damaged input, which `decompress` raises.
    """

    compress: Callable[..., bytes]
    decompress: Callable[[memoryview, Output], None]
    stream_errors: tuple[type[Exception], ...]


CODEC_FUNCTIONS = {
    Codec.GZIP: CodecFunctions(gzip_codec.compress, gzip_codec.decompress, gzip_codec.STREAM_ERRORS),
    Codec.SNAPPY: CodecFunctions(snappy_codec.compress, snappy_codec.decompress, snappy_codec.STREAM_ERRORS),
    Codec.LZ4: CodecFunctions(lz4_codec.compress, lz4_codec.decompress, lz4_codec.STREAM_ERRORS),
    Codec.ZSTD: CodecFunctions(zstd_codec.compress, zstd_codec.decompress, zstd_codec.STREAM_ERRORS),
}
"""Functions of all codecs except NONE."""
