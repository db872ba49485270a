"""Which partitions a load is about, where each of them is read, and the offsets that bind it: options, held against the
log directories."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from kafkalog_spark.errors import NotALogDirectory
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.discovery import chosen_locations
from kafkalog_spark.log.read.log_end import LogEnd
from kafkalog_spark.log.read.partition_log import Checkpoints, PartitionLocation, PartitionLog
from kafkalog_spark.source.filters import RowFilter
from kafkalog_spark.source.offsets import TopicPartition, assigned_partitions, check_said
from kafkalog_spark.source.option_spec import ReadOptions
from kafkalog_spark.source.partition_bounds import OffsetBounds, OffsetRange, resolve_bounds
from kafkalog_spark.store.interface import Store, in_parallel

T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """Offsets of a partition that are read, where they are read, and the log that was opened there."""

    range: OffsetRange
    place: PartitionLocation
    log: PartitionLog

    @property
    def topic_partition(self) -> TopicPartition:
        return self.range.topic_partition

    @property
    def stores(self) -> tuple[Store, ...]:
        return self.place.stores


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


def partition_ranges(options: ReadOptions, dirs: LogDirs, row_filter: RowFilter) -> list[PartitionRange]:
    """The ranges of the partitions that a read is about, by topic and partition. Raises what `resolve_ranges` raises,
    and UnknownPartition."""
    assigned = assigned_partitions(options.subscription, dirs.places)
    # finding the end of a log of which nothing is wanted would be for nothing
    wanted = [tp for tp in assigned if not row_filter.keeps_nothing and row_filter.accepts_partition(*tp)]
    return resolve_ranges(options, places_to_read(options, dirs, wanted), assigned)


def resolve_ranges(
    options: ReadOptions, places: Mapping[TopicPartition, PartitionLocation], assigned: Collection[TopicPartition]
) -> list[PartitionRange]:
    """The options' bounds in the partitions that lie there. assigned: those that the bounds must name. Raises what
    resolve_bounds raises, NotALogDirectory, CorruptBatch where the end of a log cannot be distinguished from damage."""
    checkpoints = Checkpoints()
    opened = for_each_place(lambda place: opened_bounds(place, options, checkpoints=checkpoints), places.values())
    logs = {tp: log_and_bounds for tp, log_and_bounds in zip(places, opened, strict=True) if log_and_bounds is not None}
    ranges = resolve_bounds(
        options.start,
        options.end,
        {tp: bounds for tp, (_, bounds) in logs.items()},
        assigned=assigned,
        on_no_match=options.on_no_match,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    return [PartitionRange(r, places[r.topic_partition], logs[r.topic_partition][0]) for r in ranges]


def opened_bounds(
    place: PartitionLocation,
    options: ReadOptions,
    *,
    fixed_end: int | None = None,
    known_end: LogEnd | None = None,
    checkpoints: Checkpoints | None = None,
) -> tuple[PartitionLog, OffsetBounds] | None:
    """The partition, opened as the read's `mode` wants it, with the start and the end that bind its range.

    `fixed_end`, `known_end`: those of the Split. `checkpoints`: see PartitionLocation.open. None, with a warning,
    for a partition that was deleted since it was listed, where failOnDataLoss is false; otherwise that raises
    NotALogDirectory.
    """
    try:
        log = place.open(pass_over_damage=options.passes_over_damage, known_end=known_end, checkpoints=checkpoints)
        if fixed_end is not None and ends_before_last_segment(log, fixed_end):
            end = log.segments[-1].base_offset  # any offset of the log will do that is not below the range's end
        elif fixed_end is None and options.read_committed:
            from kafkalog_spark.log.read.last_stable_offset import last_stable_offset

            end = last_stable_offset(log)
        else:
            end = log.log_end_offset  # of a fixed end: what was below the LSO stays below it
        bounds = bounds_of(log, log.log_start_offset, end)
        log.check_not_gone()
    except NotALogDirectory as gone:
        if options.fail_on_data_loss or place.exists():
            raise
        _log.warning("%s", gone)
        return None
    return log, bounds


def bounds_of(log: PartitionLog, log_start: int, log_end: int) -> OffsetBounds:
    """Bounds whose offsets by timestamp are those of the log."""

    def offset_for_timestamp(timestamp: int) -> int | None:
        # reading records needs the kernels: loaded only when a bound is a timestamp
        from kafkalog_spark.log.read import partition_scan

        return partition_scan.offset_for_timestamp(log, timestamp)

    return OffsetBounds(log_start, log_end, offset_for_timestamp)


def ends_before_last_segment(log: PartitionLog, end: int) -> bool:
    """True if `end` is in the log for sure: a log does not end before its last segment begins."""
    return bool(log.segments) and end <= log.segments[-1].base_offset


P = TypeVar("P", PartitionLocation, PartitionRange)


def for_each_place(function: Callable[[P], T], places: Iterable[P]) -> list[T]:
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
