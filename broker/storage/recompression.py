"""The records of a batch, unpacked within bounds, and the batch made anew with another codec or other offset deltas."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import zstandard

from broker.storage.record_walk import plain_records
from broker.storage.varint import varint
from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.log import layout
from kafkalog_spark.log.compress import compress
from kafkalog_spark.log.decompress import MAX_DECOMPRESSED, Output, decompress
from kafkalog_spark.log.encoded_batch import seal
from kafkalog_spark.log.layout import Codec
from kafkalog_spark.log.scratch import Scratch

if TYPE_CHECKING:
    from broker.config.log_config import LogConfig

PRODUCER = "producer"
"""The value of compression.type that keeps a producer's codec."""

_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_LEVELS = {
    Codec.GZIP: "compression_gzip_level",
    Codec.LZ4: "compression_lz4_level",
    Codec.ZSTD: "compression_zstd_level",
}

_KEPT_SCRATCH = 4 << 20
"""Bytes of the unpacking buffer that a thread keeps; most batches unfold to less."""

_FIRST_STEP = 64 << 10
_LARGEST_STEP = 4 << 20  # of one call of zstd: how far a bomb gets before the limit is looked at

_threads = threading.local()


def target_codec(compression_type: str, source: int) -> int:
    """The codec that a batch gets in the log."""
    return source if compression_type == PRODUCER else _CODECS[compression_type]


def unpacked(codec: int, records: memoryview, limit: int = MAX_DECOMPRESSED) -> memoryview:
    """The uncompressed records; the view is good until the same thread calls again.

    Raises CorruptBatch for a broken stream, UnfoldsTooFar for one that unfolds to more than `limit` bytes.
    """
    scratch: Scratch | None = getattr(_threads, "scratch", None)
    if scratch is None or scratch.data.size > _KEPT_SCRATCH:
        scratch = _threads.scratch = Scratch(64 << 10)
    output = Output(scratch, 0, limit)
    try:
        end = _unpack_zstd(records, output) if codec == Codec.ZSTD else decompress(codec, records, output)
    except BaseException:
        _threads.scratch = None  # it may have grown to the limit
        raise
    return scratch.view[:end]


def _unpack_zstd(records: memoryview, output: Output) -> int:
    """As `decompress`, which shares one context between all threads: contexts of zstandard must not be shared."""
    context: zstandard.ZstdDecompressor | None = getattr(_threads, "zstd", None)
    if context is None:
        context = _threads.zstd = zstandard.ZstdDecompressor()
    step = _FIRST_STEP
    try:
        with context.stream_reader(records, read_across_frames=True, closefd=False) as reader:
            while output.left:
                size = reader.readinto(output.room(step))
                if size == 0:
                    return output.at
                output.wrote(size)
                step = min(2 * step, _LARGEST_STEP)
            output.demand(len(reader.read(1)))
    except zstandard.ZstdError as error:
        raise CorruptBatch(f"cannot be decompressed (zstd): {error}") from error
    return output.at


def rebuilt(
    batch: bytearray,
    records: memoryview,
    codec: int,
    attributes: int,
    max_timestamp: int,
    config: LogConfig,
    in_sequence: bool,
) -> tuple[bytearray, int]:
    """(batch, attributes) with the same records, producer id, epoch, sequence and transactional bit.

    in_sequence: offset deltas are 0, 1, 2 ... already. Timestamps of records and the base timestamp stay.
    """
    (
        base_offset, _, leader_epoch, magic, _, _, _, base_timestamp, _, producer_id, producer_epoch, base_sequence,
        count,
    ) = layout.BATCH_HEADER.unpack_from(batch)  # fmt: skip
    plain = records if in_sequence else _renumbered(records, count, base_timestamp)
    level = getattr(config, _LEVELS[Codec(codec)], None) if codec in _LEVELS else None
    packed = compress(Codec(codec), plain, level)
    attributes = attributes & ~layout.ATTRIBUTE_CODEC | codec
    made = bytearray(layout.BATCH_OVERHEAD) + packed
    fields = (
        base_offset, 0, leader_epoch, magic, 0, attributes, count - 1, base_timestamp, max_timestamp, producer_id,
        producer_epoch, base_sequence, count,
    )  # fmt: skip
    seal(made, 0, len(made), fields)
    return made, attributes


def _renumbered(records: memoryview, count: int, base_timestamp: int) -> bytes:
    """The records with offset deltas 0, 1, 2 ... A rare thing, so in plain Python."""
    pieces: list[bytes] = []
    for record in plain_records(records, count, base_timestamp):
        body = (
            bytes(records[record.body : record.offset_delta_at])
            + varint(record.place)
            + bytes(records[record.offset_delta_end : record.end])
        )
        pieces += (varint(len(body)), body)
    return b"".join(pieces)
