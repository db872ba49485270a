"""Fsync of the files of a segment (Kafka: LogSegment.flush)."""

from __future__ import annotations

import contextlib
import os

from kafkalog_spark.format import names
from kafkalog_spark.format.fsync import fsync_file


def fsync_segment(directory: str | os.PathLike[str], base_offset: int, transient_suffix: str = "") -> None:
    """Fsync the .log, .index, .timeindex and .txnindex of a segment.

    New files are durable only after an fsync of their directory. The caller does it, because one fsync usually covers
    several segments. A file that does not exist is skipped: a segment without aborted transactions has no .txnindex,
    and retention may have removed the segment since.

    Args:
        directory: Partition directory.
        base_offset: Base offset of the segment.
        transient_suffix: `.swap` while the segment replaces others.

    Raises:
        OSError: If a file cannot be opened or synced. Any of the files may then be incomplete on disk.
    """
    stem = os.path.join(directory, names.segment_name(base_offset))
    for suffix in names.SEGMENT_SUFFIXES:
        with contextlib.suppress(FileNotFoundError):
            fsync_file(stem + suffix + transient_suffix)
