"""What the first look at a partition directory does to its files, before anything is read (LogLoader).

An interrupted deletion, cleaning or split leaves files with a suffix. Which of them are the log is decided in
`names.live_segments`; here the directory is made to hold exactly those, under their plain names. A crash in the middle
of this leaves a directory that gives the same log again: what is not the log goes before anything gets its name, and
`.cleaned` files, whose presence marks `.swap` files as unfinished, go last.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from kafkalog_spark.errors import CorruptBatch, UnsupportedFormat
from kafkalog_spark.format import names
from kafkalog_spark.format.atomic_file import descriptor
from kafkalog_spark.format.partition_metadata import UNFINISHED
from kafkalog_spark.log.write.segment_recovery import headers_from


@dataclass(frozen=True, slots=True)
class StartupFiles:
    """What to do, in this order: remove files, rename (old name, new name). Then the log is `base_offsets`."""

    removals: tuple[str, ...]
    renames: tuple[tuple[str, str], ...]
    base_offsets: tuple[int, ...]
    snapshots: tuple[int, ...]
    """Offsets of the producer snapshots."""
    complete: frozenset[int]
    """Base offsets of the segments that have both indexes; those of the others are to be made again."""
    transactional: frozenset[int]
    """Base offsets of the segments that have a transaction index."""


def plan_startup(listing: Iterable[str], next_offset: Callable[[str], int]) -> StartupFiles:
    """What a listing of a partition directory calls for. `next_offset`: as in names.live_segments."""
    listing = list(listing)
    live = names.live_segments(listing, next_offset)
    kept = {
        name
        for segment in live
        for name in (segment.log, segment.offset_index, segment.time_index, segment.transaction_index)
        if name is not None
    }
    swapped = [name for name in kept if name.endswith(names.SWAP_SUFFIX)]
    removed: list[tuple[int, str]] = []
    for name in listing:
        if name in kept:
            continue
        file = names.parse_segment_file(name)
        if file is None:
            if name in UNFINISHED:
                removed.append((1, name))
            continue
        if file.suffix == names.PRODUCER_SNAPSHOT_SUFFIX and file.transient_suffix is None:
            continue
        removed.append((_REMOVAL_ORDER.get(file.transient_suffix or "", 1), name))
    return StartupFiles(
        tuple(name for _, name in sorted(removed)),
        tuple((name, name.removesuffix(names.SWAP_SUFFIX)) for name in sorted(swapped, key=_log_first)),
        tuple(segment.base_offset for segment in live),
        tuple(offset for offset, _ in names.producer_snapshots(listing)),
        frozenset(segment.base_offset for segment in live if segment.offset_index and segment.time_index),
        frozenset(segment.base_offset for segment in live if segment.transaction_index),
    )


_REMOVAL_ORDER = {names.SWAP_SUFFIX: 0, names.CLEANED_SUFFIX: 2}
"""Everything else is removed in between."""


def _log_first(name: str) -> tuple[str, bool]:
    """A .log takes its .swap indexes until they lose the suffix, too; the other way round they would be orphans."""
    base_offset, _, suffixes = name.partition(".")
    return base_offset, not suffixes.startswith(names.LOG_SUFFIX[1:])


def tidy(directory: Path) -> StartupFiles:
    """Look at a partition directory and make it hold its log only; what was done. Raises OSError."""
    plan = plan_startup(os.listdir(directory), lambda name: next_offset_of(directory / name))
    for name in plan.removals:
        (directory / name).unlink()
    for old, new in plan.renames:
        os.rename(directory / old, directory / new)
    return plan


def next_offset_of(path: Path) -> int:
    """The offset after the last whole batch in a .log file; its base offset when there is none. Reads all headers."""
    file_name = names.parse_segment_file(path.name)
    assert file_name is not None
    next_offset = file_name.base_offset
    with descriptor(path) as fd:
        try:
            for header in headers_from(fd, 0, os.fstat(fd).st_size):
                next_offset = header.last_offset + 1
        except (CorruptBatch, UnsupportedFormat):
            pass  # recovery will say what it is; the log goes on up to here
    return next_offset
