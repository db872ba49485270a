"""Explains why a reader finds no segments in a directory, or not all of them.

The segments may be compressed, or in directories one level deeper or higher. All texts are clauses without a full stop.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Sequence

from kafkalog_spark.format.names import DirKind, PartitionDir, parse_partition_dir
from kafkalog_spark.log.read.partition_listing import compressed_segments, has_segment, is_new_partition
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.store.interface import Listing, Store

_MAX_LISTED_DIRS = 20  # subdirectories that are listed for a hint
_MAX_SHOWN = 5  # names, or partitions, in a message

_PACKED_PARTITION = re.compile(r".+-[0-9]+\.(tar|tgz|tbz2|txz|zip|7z|tar\.[a-zA-Z0-9]+)")

_log = logging.getLogger(__name__)


def hint_at_segments(path: str, store: Store, listing: Listing | None = None) -> str | None:
    """Return a hint to where the segments missing from `path` may be, and what to do.

    Use it for errors and warnings only: it lists some of the directories in `path`, and the directory above it.

    Args:
        path: The path that a user gave.
        store: Store of `path`.
        listing: Listing of `path`; None if `path` does not exist.

    Returns:
        None if no segments are near `path`.
    """
    if listing is not None and (found_inside := hint_from_content(path, store, listing)):
        return found_inside
    parent, name = os.path.split(path)
    above = _list_or_none(parent, store)
    if above is None:
        return None
    if has_segment(above):
        return f"segments are one level higher, in {parent}: give that"
    partitions = _live_partitions(above)
    if listing is None and (found := [entry for entry, partition in partitions if partition.topic == name]):
        return f"{parent} holds {_join_some(found)}: give {parent}, and subscribe={name}"
    if partitions:
        return f"{parent} is a log directory: give that"
    return None


def hint_from_content(path: str, store: Store, listing: Listing) -> str | None:
    """Like `hint_at_segments`, but look only inside the directory.

    It is for partition directories: the directory above them is the log directory that is being read.
    """
    if compressed := compressed_segments(listing.names):
        return f"it holds {_describe_compressed(compressed)}"
    if packed := sorted(filter(_PACKED_PARTITION.fullmatch, listing.names)):
        return f"it holds archives named like partitions ({_join_some(packed)}): unpack them"
    names = [name for name in sorted(listing.names) if listing.is_directory(name)][:_MAX_LISTED_DIRS]
    directories = [os.path.join(path, name) for name in names]
    listed = [(directory, inner) for directory in directories if (inner := _list_or_none(directory, store)) is not None]
    if found := [directory for directory, inner in listed if _live_partitions(inner)]:
        advice = "is a log directory: give that" if len(found) == 1 else "are log directories: give these"
        return f"{_join_some(found)} {advice}"
    if found := [directory for directory, inner in listed if has_segment(inner)]:
        return (
            f"the segments are one level deeper, in {_join_some(found)}: they belong in a directory named "
            "<topic>-<partition>"
        )
    return None


def missing_segments_warning(log: PartitionLog) -> str | None:
    """Return a warning if all segments of the log, or compressed ones, are missing; otherwise None."""
    compressed = compressed_segments(log.names)
    if compressed and log.segments:
        return (
            f"{log.directory} holds {_describe_compressed(compressed)}; the log begins at offset {log.log_start_offset}"
        )
    if compressed:
        return f"{log.directory} holds no segment: it holds {_describe_compressed(compressed)}"
    if log.segments or log.is_deleted:
        return None
    listing = _list_or_none(log.directory, log.store)
    # The partition may have been deleted or created since the log was opened.
    if listing is None or has_segment(listing) or is_new_partition(listing):
        return None
    hint = hint_from_content(log.directory, log.store, listing)
    return f"{log.directory} holds no segment{f': {hint}' if hint else ''}"


def warn_of_missing_segments(logs: Iterable[PartitionLog]) -> None:
    """Log, in one line, the partitions whose segments are missing."""
    warnings = [warning for log in logs if (warning := missing_segments_warning(log)) is not None]
    if warnings:
        hidden = len(warnings) - _MAX_SHOWN
        more = f"; and {hidden} more partition{'s' if hidden > 1 else ''}" if hidden > 0 else ""
        _log.warning("rows may be missing: %s%s", "; ".join(warnings[:_MAX_SHOWN]), more)


def _list_or_none(path: str, store: Store) -> Listing | None:
    try:
        return store.list(path)
    except OSError:
        return None


def _live_partitions(listing: Listing) -> list[tuple[str, PartitionDir]]:
    """Return name and parsed name of the partition directories, except those that are deleted, stray or future."""
    parsed = ((name, parse_partition_dir(name)) for name in sorted(listing.names) if listing.is_directory(name))
    return [(name, partition) for name, partition in parsed if partition is not None and partition.kind is DirKind.LIVE]


def _describe_compressed(names: Sequence[str]) -> str:
    segments = "1 compressed segment" if len(names) == 1 else f"{len(names)} compressed segments"
    return f"{segments} ({names[0]}{', ...' if len(names) > 1 else ''}), not read: decompress first"


def _join_some(names: Sequence[str]) -> str:
    return ", ".join(names[:_MAX_SHOWN]) + (f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else "")
