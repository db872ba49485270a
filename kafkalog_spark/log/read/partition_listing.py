"""What the names in a partition's directory say about it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kafkalog_spark.format.names import LOG_SUFFIX, parse_segment_file
from kafkalog_spark.format.partition_metadata import OWN_FILES, PARTITION_METADATA_FILE
from kafkalog_spark.store.interface import Listing

_COMPRESSED_SEGMENT = re.compile(r"[0-9]{20}\.log\.(gz|bz2|xz|zst|zstd|lz4|lzma|lzo|snappy|sz|zip|7z|Z)")


def is_segment(name: str) -> bool:
    """Return True for the name of a .log file that is, or is about to become, part of a log."""
    file = parse_segment_file(name)
    return file is not None and file.suffix == LOG_SUFFIX


def has_segment(listing: Listing) -> bool:
    return any(map(is_segment, listing.names))


def compressed_segments(names: Iterable[str]) -> list[str]:
    """Return the names of segments that a program other than Kafka has compressed, in order."""
    return sorted(filter(_COMPRESSED_SEGMENT.fullmatch, names))


def has_partition_file(names: Iterable[str]) -> bool:
    """Return True if a listing has a file that a broker writes into a partition's directory."""
    return any(parse_segment_file(name) or name in OWN_FILES or _COMPRESSED_SEGMENT.fullmatch(name) for name in names)


def is_new_partition(listing: Listing) -> bool:
    """Return True for a partition without records, as the sink creates it in a bucket."""
    return listing.names == [PARTITION_METADATA_FILE]
