"""The files of a segment as one unit of durability (LogSegment.flush)."""

from __future__ import annotations

import contextlib
import os

from kafkalog_spark.format import names
from kafkalog_spark.format.fsync import fsync_file


def fsync_segment(directory: str | os.PathLike[str], base_offset: int, transient_suffix: str = "") -> None:
    """Put the bytes of a segment's .log, .index, .timeindex and .txnindex on disk.

    Their names are durable only after an fsync of the directory, which is left to the caller, because it usually covers
    several segments. A file that does not exist is skipped: a segment without aborted transactions has no .txnindex,
    and retention may have removed the segment meanwhile.

    Args:
        transient_suffix: ``.swap`` while the segment is replacing others.

    Raises:
        OSError: If a file cannot be opened or synced; then nothing may be assumed to be on disk.
    """
    stem = os.path.join(directory, names.segment_name(base_offset))
    for suffix in names.SEGMENT_SUFFIXES:
        with contextlib.suppress(FileNotFoundError):
            fsync_file(stem + suffix + transient_suffix)
