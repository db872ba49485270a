"""Explains why a reader finds no segments in a directory, or not all of them.

The segments may be compressed, or in directories one level deeper or higher.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Sequence

from kafkalog_spark.format.names import LOG_SUFFIX, DirKind, parse_partition_dir, parse_segment_file
from kafkalog_spark.format.partition_metadata import OWN_FILES, PARTITION_METADATA_FILE
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.store.interface import Listing, Store

_LISTED = 20  # subdirectories that are listed for an explanation
_SHOWN = 5  # names, or partitions, in a message

_COMPRESSED_SEGMENT = re.compile(r"[0-9]{20}\.log\.(gz|bz2|xz|zst|zstd|lz4|lzma|lzo|snappy|sz|zip|7z|Z)")
_PACKED_PARTITION = re.compile(r".+-[0-9]+\.(tar|tgz|tbz2|txz|zip|7z|tar\.[a-zA-Z0-9]+)")

_log = logging.getLogger(__name__)


def is_segment(name: str) -> bool:
    """Return True for the name of a .log file that is, or is about to become, part of a log."""
    file = parse_segment_file(name)
    return file is not None and file.suffix == LOG_SUFFIX


def compressed_segments(names: Iterable[str]) -> list[str]:
    """Return the names of segments that a program other than Kafka has compressed, in order."""
    return sorted(filter(_COMPRESSED_SEGMENT.fullmatch, names))


def explain(path: str, store: Store, listing: Listing | None = None) -> str | None:
    """Return a hint where the segments may be that a reader does not find in a path, and what to do.

    Use it for errors and warnings only: it lists some of the directories in `path`, and the directory above it.

    Args:
        path: The path that a user gave.
        store: Its store.
        listing: Its content; None if it does not exist.

    Returns:
        A clause without a full stop; None if no segments are near `path`.
    """
    if listing is not None and (found_inside := explain_content(path, store, listing)):
        return found_inside
    parent = os.path.dirname(path)
    above = _listed(parent, store)
    if above is None:
        return None
    if any(map(is_segment, above.names)):
        return f"segments are one level higher, in {parent}: give that"
    if listing is None and (found := _partitions_of(os.path.basename(path), above)):
        return f"{parent} holds {_shown(found)}: give {parent}, and subscribe={os.path.basename(path)}"
    if _holds_partitions(above):
        return f"{parent} is a log directory: give that"
    return None


def explain_content(path: str, store: Store, listing: Listing) -> str | None:
    """Return a hint as `explain`, but only by the content of the directory.

    It is for partition directories: the directory above them is the log directory that is being read.
    """
    if compressed := compressed_segments(listing.names):
        return f"it holds {_compressed(compressed)}"
    if packed := sorted(filter(_PACKED_PARTITION.fullmatch, listing.names)):
        return f"it holds archives named like partitions ({_shown(packed)}): unpack them"
    below = [name for name in sorted(listing.names) if listing.is_directory(name)][:_LISTED]
    listings = [(name, _listed(os.path.join(path, name), store)) for name in below]
    if found := [name for name, inner in listings if inner is not None and _holds_partitions(inner)]:
        what = "is a log directory: give that" if len(found) == 1 else "are log directories: give these"
        return f"{_shown([os.path.join(path, name) for name in found])} {what}"
    if found := [name for name, inner in listings if inner is not None and any(map(is_segment, inner.names))]:
        where = _shown([os.path.join(path, name) for name in found])
        return f"the segments are one level deeper, in {where}: they belong into a directory <topic>-<partition>"
    return None


def explain_log(log: PartitionLog) -> str | None:
    """Return a text about the segments that a reader of this log misses: all of them, or compressed ones; else None."""
    compressed = compressed_segments(log.names)
    if compressed and log.segments:
        return f"{log.directory} holds {_compressed(compressed)}; the log begins at offset {log.log_start_offset}"
    if compressed:
        return f"{log.directory} holds no segment: it holds {_compressed(compressed)}"
    if log.segments or log.is_deleted:
        return None
    listing = _listed(log.directory, log.store)
    # The partition may have been deleted or created since the log was opened.
    if listing is None or any(map(is_segment, listing.names)) or is_new(listing):
        return None
    explanation = explain_content(log.directory, log.store, listing)
    return f"{log.directory} holds no segment{f': {explanation}' if explanation else ''}"


def is_new(listing: Listing) -> bool:
    """Return True for a partition without records, as the sink creates it in a bucket."""
    return listing.names == [PARTITION_METADATA_FILE]


def warn_of_missing_segments(logs: Iterable[PartitionLog]) -> None:
    """Log, in one line, the partitions whose segments are missing."""
    texts = [text for log in logs if (text := explain_log(log)) is not None]
    if texts:
        more = f"; and {len(texts) - _SHOWN} more partitions" if len(texts) > _SHOWN else ""
        _log.warning("rows may be missing: %s%s", "; ".join(texts[:_SHOWN]), more)


def has_partition_file(names: Iterable[str]) -> bool:
    """Return True if a listing has a file that a broker writes into a partition's directory."""
    return any(parse_segment_file(name) or name in OWN_FILES or _COMPRESSED_SEGMENT.fullmatch(name) for name in names)


def _compressed(names: Sequence[str]) -> str:
    segments = "1 compressed segment" if len(names) == 1 else f"{len(names)} compressed segments"
    return f"{segments} ({_shown(names[:1])}{', ...' if len(names) > 1 else ''}), not read: decompress first"


def _holds_partitions(listing: Listing) -> bool:
    parsed = ((name, parse_partition_dir(name)) for name in listing.names)
    return any(
        partition is not None and partition.kind is DirKind.LIVE and listing.is_directory(name)
        for name, partition in parsed
    )


def _partitions_of(topic: str, listing: Listing) -> list[str]:
    parsed = ((name, parse_partition_dir(name)) for name in sorted(listing.names))
    return [name for name, partition in parsed if partition is not None and partition.topic == topic]


def _listed(path: str, store: Store) -> Listing | None:
    try:
        return store.list(path)
    except OSError:
        return None


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
