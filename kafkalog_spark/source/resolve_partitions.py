"""Which partitions a load is about, and where each of them is read: options, held against the log directories."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from kafkalog_spark.errors import NotALogDirectory
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.log_end import LogEnd
from kafkalog_spark.log.read.partition_log import PartitionLocation, PartitionLog
from kafkalog_spark.log.read.replicas import chosen_locations
from kafkalog_spark.log.read.small_files import Checkpoints
from kafkalog_spark.source.offsets import TopicPartition, assigned_partitions, check_said
from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.partition_bounds import OffsetBounds
from kafkalog_spark.store.interface import Store, in_parallel


def open_log_dirs(options: ReadOptions) -> LogDirs:
    """The log directories, listed. Raises NotALogDirectory; OptionError where the load does not say what it reads."""
    dirs = LogDirs.open(options.paths, options.storage, options.tier)
    if options.table is None:
        check_said(options.subscription, dirs.partitions_only, dirs.places)
    return dirs


def places_to_read(
    options: ReadOptions, dirs: LogDirs, wanted: Collection[TopicPartition]
) -> dict[TopicPartition, PartitionLocation]:
    """Where each of the `wanted` partitions is read, of several copies the one that the option `replicas` means. Raises
    what `chosen_locations` raises."""
    if options.replicas == "merge":
        from kafkalog_spark.log.repair.merged_log import merged_locations

        return merged_locations(dirs.places, dirs.copies, wanted)
    return chosen_locations(
        dirs.places, dirs.copies, wanted, options.replicas, pass_over_damage=options.passes_over_damage
    )


def check_load(options: ReadOptions) -> None:
    """Check a load by listing the log directories; no log is opened.

    Raises NotALogDirectory, OptionError, and UnknownPartition for a topic that is not there; with failOnDataLoss=false
    that is left to the query, since a stream may go on after one of its topics was deleted.
    """
    dirs = open_log_dirs(options)
    if options.fail_on_data_loss:
        assigned_partitions(options.subscription, dirs.places)


# A partition as a read sees it: opened as the options want, with the start and the end that bind its range.

_log = logging.getLogger(__name__)


def opened_view(
    place: PartitionLocation,
    options: ReadOptions,
    *,
    fixed_end: int | None = None,
    known_end: LogEnd | None = None,
    checkpoints: Checkpoints | None = None,
) -> tuple[PartitionLog, OffsetBounds] | None:
    """The partition, opened as the read's `mode` wants it, and its view.

    `fixed_end`, `known_end`: those of the Split. `checkpoints`: see PartitionLocation.open. None, with a warning,
    for a partition that was deleted since it was listed, where failOnDataLoss is false; otherwise that raises
    NotALogDirectory.
    """
    try:
        log = place.open(pass_over_damage=options.passes_over_damage, known_end=known_end, checkpoints=checkpoints)
        view = OffsetBounds(
            log_start=log.log_start_offset,
            log_end=_end_for_readers(log, options, fixed_end),
            offset_for_timestamp=partial(_offset_for_timestamp, log),
        )
        log.check_not_gone()
    except NotALogDirectory as gone:
        if options.fail_on_data_loss or place.exists():
            raise
        _log.warning("%s", gone)
        return None
    return log, view


def _end_for_readers(log: PartitionLog, options: ReadOptions, fixed_end: int | None) -> int:
    """Where readers have to stop; for a range that ends before that, an offset that is not above it will do."""
    if fixed_end is not None:
        if ends_before_last_segment(log, fixed_end):
            return log.segments[-1].base_offset
        return log.log_end_offset  # what was below the LSO stays below it
    from kafkalog_spark.log.read.last_stable_offset import last_stable_offset

    return last_stable_offset(log) if options.read_committed else log.log_end_offset


def ends_before_last_segment(log: PartitionLog, end: int) -> bool:
    """True if `end` is in the log for sure: a log does not end before its last segment begins."""
    return bool(log.segments) and end <= log.segments[-1].base_offset


def _offset_for_timestamp(log: PartitionLog, timestamp: int) -> int | None:
    # reading records needs the kernels: loaded only when a bound is a timestamp
    from kafkalog_spark.log.read.partition_scan import offset_for_timestamp

    return offset_for_timestamp(log, timestamp)


T = TypeVar("T")


def for_each_place(function: Callable[[PartitionLocation], T], places: Iterable[PartitionLocation]) -> list[T]:
    """Results of `function` for each place, in order. Raises what it raised first, by that order."""
    return in_parallel(function, places, lambda place: any(store.remote for store in place.stores))


@contextmanager
def requests_logged(what: str, stores: Iterable[Store]) -> Iterator[None]:
    """Log, at level INFO, the requests and bytes of this process while it lasts; nothing where all stores are near."""
    if not any(store.remote for store in stores):
        yield
        return
    from kafkalog_spark.store.object_client import all_counts  # the client of object stores only where one is read

    before = all_counts()
    try:
        yield
    finally:
        _log.info("%s: %s", what, all_counts() - before)
