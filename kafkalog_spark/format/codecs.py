"""Facts about each compression codec: its levels, and where Kafka allows it.

`layout.Codec` has the names and ids, log/codecs the functions that compress and decompress.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kafkalog_spark.format.layout import Codec


@dataclass(frozen=True, slots=True)
class Levels:
    """Compression levels (KIP-390). The default is valid even if it is outside of lowest to highest."""

    default: int
    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class CodecFacts:
    """Properties of a codec.

    Attributes:
        levels: None if the codec has none.
        first_produce_version: Lowest version of Produce requests that may carry it; None for a codec that Kafka does
            not have, which the broker refuses.
        in_message_sets: True if wrappers of message sets v0 and v1 may be compressed with it.
        bytes_in_event_loop: Decompressed bytes up to which the broker validates a batch in its event loop, which takes
            up to about 2 ms. gzip decompresses 0.2 to 0.65 GB/s on one core, zstd 0.5 to 1.4, snappy and lz4 1 to 12.
    """

    levels: Levels | None = None
    first_produce_version: int | None = 0
    in_message_sets: bool = True
    bytes_in_event_loop: int = 256 << 10


CODECS = {
    Codec.NONE: CodecFacts(bytes_in_event_loop=2 << 20),
    Codec.GZIP: CodecFacts(Levels(default=-1, lowest=1, highest=9), bytes_in_event_loop=256 << 10),
    Codec.SNAPPY: CodecFacts(bytes_in_event_loop=1 << 20),
    Codec.LZ4: CodecFacts(Levels(default=9, lowest=1, highest=17), bytes_in_event_loop=1 << 20),
    Codec.ZSTD: CodecFacts(
        Levels(default=3, lowest=-131072, highest=22),
        first_produce_version=7,  # KIP-110
        in_message_sets=False,
        bytes_in_event_loop=1 << 20,
    ),
}
KAFKA_CODECS = frozenset(codec for codec, facts in CODECS.items() if facts.first_produce_version is not None)
"""Codecs that Kafka has."""


def listed(codecs: Iterable[Codec]) -> str:
    """Return the codecs for an error text, such as "0 (none), 1 (gzip)"."""
    return ", ".join(f"{codec.value} ({codec.label})" for codec in sorted(codecs))


def compression_level(codec: Codec, level: int | None) -> int | None:
    """Return `level`, or the codec's default if it is None; None for a codec without levels.

    Raises:
        ValueError: If Kafka refuses the level.
    """
    levels = CODECS[codec].levels
    if levels is None:
        if level is not None:
            raise ValueError(f"{codec.label} has no compression levels, got {level}")
        return None
    if level is None or level == levels.default:
        return levels.default
    if not levels.lowest <= level <= levels.highest:
        raise ValueError(
            f"{codec.label} levels go from {levels.lowest} to {levels.highest} (default {levels.default}), got {level}"
        )
    return level
