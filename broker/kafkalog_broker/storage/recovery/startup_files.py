"""Cleanup of a partition's directory before its log is loaded.

An interrupted deletion, cleaning or split leaves files with a suffix. `names.live_segments` decides which of them
belong to the log. The cleanup leaves exactly these files in the directory, under their plain names. A crash during the
cleanup is harmless, because the next start then finds the same log: files that do not belong to the log are removed
before any file gets its plain name, and `.cleaned` files, which mark `.swap` files as unfinished, are removed last. The
directory is fsynced between these steps, because a power failure may undo an earlier change but not a later one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from kafkalog_spark.errors import CorruptBatch, UnsupportedFormat
from kafkalog_spark.format import names
from kafkalog_spark.format.fsync import fsync_directory
from kafkalog_spark.format.partition_metadata import UNFINISHED
from kafkalog_spark.format.regular_file import descriptor
from kafkalog_spark.log.write.header_reader import headers_from


class StartupFiles(NamedTuple):
    """Cleanup plan of a directory: first remove files, then rename them.

    Attributes:
        returned: Files to remove before all others: segments whose deletion a power failure undid.
        removals: Other files to remove, in order.
        renames: Old and new names.
        base_offsets: Segments of the log after the cleanup.
        snapshots: Offsets of producer snapshots.
        complete: Segments that have both indexes; those of the others must be rebuilt.
        transactional: Segments that have a transaction index.
        deleted: Base offsets of segments renamed `.deleted`, ascending.
    """

    returned: tuple[str, ...]
    removals: tuple[str, ...]
    renames: tuple[tuple[str, str], ...]
    base_offsets: tuple[int, ...]
    snapshots: tuple[int, ...]
    complete: frozenset[int]
    transactional: frozenset[int]
    deleted: tuple[int, ...]


def plan_startup(
    listing: Iterable[str], next_offset: Callable[[str], int], *, completes_retention: bool = False
) -> StartupFiles:
    """Plan the cleanup of a partition directory.

    Args:
        listing: Names in the directory.
        next_offset: As in `names.live_segments`.
        completes_retention: True for a log that is not compacted and was not shut down cleanly. Then older segments
            below one that is named `.deleted` are removed too: retention renamed both, and a power failure undid one
            rename.
    """
    listing = list(listing)
    live = names.live_segments(listing, next_offset)
    deleted = tuple(sorted(
        file.base_offset
        for file in map(names.parse_segment_file, listing)
        if file is not None and (file.suffix, file.transient_suffix) == (names.LOG_SUFFIX, names.DELETED_SUFFIX)
    ))  # fmt: skip
    returned = live[: _count_below_deleted(live, deleted, next_offset)] if completes_retention else []
    live = live[len(returned) :]
    kept = _file_names(live)
    swapped = [name for name in kept if name.endswith(names.SWAP_SUFFIX)]

    def log_first(name: str) -> tuple[str, bool]:
        """Rename a .log before its indexes: a plain .log may use .swap indexes, but a plain index needs its .log."""
        base_offset, _, suffixes = name.partition(".")
        return base_offset, not suffixes.startswith(names.LOG_SUFFIX[1:])

    removed: list[tuple[int, str]] = []
    first_removed = _file_names(returned)
    for name in listing:
        if name in kept or name in first_removed:
            continue
        file = names.parse_segment_file(name)
        if file is None:
            if name in UNFINISHED:
                removed.append((_removal_stage(name), name))
            continue
        if file.suffix == names.PRODUCER_SNAPSHOT_SUFFIX and file.transient_suffix is None:
            continue
        removed.append((_removal_stage(name), name))
    return StartupFiles(
        tuple(sorted(first_removed)),
        tuple(name for _, name in sorted(removed)),
        tuple((name, name.removesuffix(names.SWAP_SUFFIX)) for name in sorted(swapped, key=log_first)),
        tuple(segment.base_offset for segment in live),
        tuple(offset for offset, _ in names.producer_snapshots(listing)),
        frozenset(segment.base_offset for segment in live if segment.offset_index and segment.time_index),
        frozenset(segment.base_offset for segment in live if segment.transaction_index),
        deleted,
    )


def _file_names(segments: Iterable[names.SegmentFiles]) -> set[str]:
    return {
        name
        for segment in segments
        for name in (segment.log, segment.offset_index, segment.time_index, segment.transaction_index)
        if name is not None
    }


def _count_below_deleted(
    live: Sequence[names.SegmentFiles], deleted: Sequence[int], next_offset: Callable[[str], int]
) -> int:
    """Return the number of segments below the last gap that retention left when it renamed segments to `.deleted`.

    Truncation leaves `.deleted` files too, but no gap: an older segment covers their offsets.
    """
    for slot in range(len(live) - 1, 0, -1):
        before = live[slot - 1]
        between = [base for base in deleted if before.base_offset < base < live[slot].base_offset]
        if between and next_offset(before.log) <= between[0]:
            return slot
    return 0


def _removal_stage(name: str) -> int:
    """Return the order of removal: `.swap` files first, `.cleaned` files last."""
    return 0 if name.endswith(names.SWAP_SUFFIX) else 2 if name.endswith(names.CLEANED_SUFFIX) else 1


def clean_up(directory: Path, *, completes_retention: bool = False) -> StartupFiles:
    """Clean up a partition directory, and return the plan that was carried out. Raises OSError."""
    plan = plan_startup(
        os.listdir(directory),
        lambda name: next_offset_of(directory / name),
        completes_retention=completes_retention,
    )
    for name in plan.returned:
        (directory / name).unlink()
    if plan.returned:  # their removal must be on disk while `.deleted` files still show where the log begins
        fsync_directory(directory)
    for stage, removed in groupby(plan.removals, _removal_stage):
        if stage > _removal_stage(plan.removals[0]):
            fsync_directory(directory)
        for name in removed:
            (directory / name).unlink()
    if plan.removals and plan.renames:
        fsync_directory(directory)
    for old, new in plan.renames:
        os.rename(directory / old, directory / new)
    return plan


def next_offset_of(path: Path) -> int:
    """Return the offset after the last whole batch of a .log file; its base offset if it has no batch.

    Reads all headers.
    """
    file_name = names.parse_segment_file(path.name)
    assert file_name is not None
    next_offset = file_name.base_offset
    with descriptor(path) as fd:
        try:
            for header in headers_from(fd, 0, os.fstat(fd).st_size):
                next_offset = header.last_offset + 1
        except (CorruptBatch, UnsupportedFormat):
            pass  # recovery reports the damage; the log continues up to here
    return next_offset
