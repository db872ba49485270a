"""A whole log directory, repaired into a new one: partitions, checkpoints, meta.properties.

    report = repair_log_dirs(["/data/damaged"], "/data/repaired")
    print("\\n".join(report.lines()))

Nothing in the source is changed. There is no clean-shutdown marker in what is made, and no recovery point: a broker
that loads it looks at every batch, makes its producer snapshots, and trusts nothing that is said here.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalog_spark.errors import KafkalogError, OptionError
from kafkalog_spark.format import checkpoint
from kafkalog_spark.format.atomic_file import descriptor, fsync_tree, make_directories
from kafkalog_spark.format.checkpoint import TopicPartition
from kafkalog_spark.format.layout import MAX_SEGMENT_SIZE
from kafkalog_spark.format.meta_properties import META_PROPERTIES_FILE, MOST_BYTES, parse_meta_properties
from kafkalog_spark.format.names import CLUSTER_METADATA_TOPIC
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.replica_choice import check_one_topic
from kafkalog_spark.log.read.state_files import Checkpoints, parsed_file
from kafkalog_spark.log.remote.recorded_storage import refuse_unallowed
from kafkalog_spark.log.repair.merged_log import merged_location
from kafkalog_spark.log.repair.partition_repair import repair_partition
from kafkalog_spark.log.repair.report import PartitionReport, RepairReport
from kafkalog_spark.log.tiered.tier_options import NO_TIER, TierOptions

if TYPE_CHECKING:
    from kafkalog_spark.store.storage_options import StorageOptions


_METADATA_DIR = f"{CLUSTER_METADATA_TOPIC}-0"


def repair_log_dirs(
    sources: Iterable[str | os.PathLike[str]],
    destination: str | os.PathLike[str],
    storage: StorageOptions | None = None,
    tier: TierOptions = NO_TIER,
    *,
    records: bool = False,
    on_partition: Callable[[PartitionReport, int], None] | None = None,
) -> RepairReport:
    """Write what is good in log directories, or single partitions' directories, to the new directory `destination`.

    Of a partition that lies in several of them, the copy is taken that a read takes (replicas), and what is damaged in
    it from the others (merged_log). records: decode every record; batches that cannot be are lost, too. on_partition:
    called with each partition, and how many there are. On return everything is on disk. Raises OptionError for a
    destination that is not new and empty, or lies in a source, and for remote storage that a source names and no option
    allows; NotALogDirectory for a source; OSError where the destination cannot be written.
    """
    dirs = LogDirs.open(sources, storage, tier)
    refuse_unallowed(dirs.locations.values())
    target = _new_directory(destination, [Path(root.path) for root in dirs.roots if not root.store.remote])
    report = RepairReport(str(target))
    check_one_topic(dirs.locations, dirs.copies, list(dirs.locations))
    checkpoints = Checkpoints()
    marks: dict[TopicPartition, int] = {}
    starts: dict[TopicPartition, int] = {}
    for tp, first in dirs.locations.items():
        place = first
        try:
            place = merged_location(dirs.copies[tp]) if tp in dirs.copies else first
        except (KafkalogError, FileNotFoundError) as error:  # the other partitions go on
            repaired = PartitionReport(first.topic, first.partition, first.directory, error=str(error))
        else:
            repaired = repair_partition(place, target, records=records, checkpoints=checkpoints)
        report.partitions.append(repaired)
        start, end = repaired.log_start_offset, repaired.log_end_offset
        if repaired.error is None:
            if start:
                starts[tp] = start
            if place.local.has_checkpoints:
                known = checkpoints.read(place.store, place.log_dir, checkpoint.HIGH_WATERMARK_CHECKPOINT)
                marks[tp] = min(max(known.get(tp, end), start), end)
        if on_partition is not None:
            on_partition(repaired, len(dirs.locations))
    checkpoint.write_offset_checkpoint(target / checkpoint.HIGH_WATERMARK_CHECKPOINT, marks)
    checkpoint.write_offset_checkpoint(target / checkpoint.LOG_START_OFFSET_CHECKPOINT, starts)
    _copy_of_broker(dirs, target, report)
    fsync_tree(target)  # the caller may delete the source as soon as this returns
    return report


def _new_directory(destination: str | os.PathLike[str], roots: list[Path]) -> Path:
    target = Path(destination).expanduser().absolute()
    for root in roots:
        if target.resolve().is_relative_to(root.resolve()) or root.resolve().is_relative_to(target.resolve()):
            raise OptionError(
                f"the destination {target} and the source {root} lie in each other", hint="choose another"
            )
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise OptionError(f"the destination {target} is not an empty directory", hint="nothing is repaired in place")
    make_directories(target)
    return target


def _copy_of_broker(dirs: LogDirs, target: Path, report: RepairReport) -> None:
    """meta.properties, and of KRaft's own log what there is; of several directories, of the first that has it."""
    for path, store in dirs.roots:
        try:
            file = os.path.join(path, META_PROPERTIES_FILE)
            (target / META_PROPERTIES_FILE).write_bytes(parsed_file(store, file, _meta_properties, MOST_BYTES))
            break
        except FileNotFoundError:
            continue
        except (KafkalogError, OSError) as error:
            report.notes.append(f"{META_PROPERTIES_FILE} is not taken over: {error}")
    for path, store in dirs.roots:
        metadata = Path(path, _METADATA_DIR)
        if store.remote or not os.path.lexists(metadata):
            continue
        if metadata.is_symlink() or not metadata.is_dir():
            report.notes.append(f"{metadata}, KRaft's own log, is left out: it is no directory, or a link to one")
            continue
        left_out = _copy_regular_files(metadata, target / _METADATA_DIR)
        report.notes.append(f"{metadata}, KRaft's own log, is copied as it is: it was not looked at")
        report.notes += [f"{metadata / name} is left out: {why}" for name, why in left_out]
        break


def _meta_properties(data: bytes) -> bytes:
    parse_meta_properties(data)
    return data


def _copy_regular_files(source: Path, target: Path) -> list[tuple[str, str]]:
    """Names and reasons of what is left out, such as links, which may lead away. Raises OSError of the target."""
    left_out = []
    target.mkdir()
    for entry in sorted(os.scandir(source), key=lambda entry: entry.name):
        try:
            with descriptor(entry.path, os.O_RDONLY | os.O_NOFOLLOW) as fd:
                size = os.fstat(fd).st_size
                if size <= MAX_SEGMENT_SIZE:
                    with open(fd, "rb", closefd=False) as file, open(target / entry.name, "xb") as copy:
                        shutil.copyfileobj(file, copy)
                else:
                    left_out.append((entry.name, f"it has {size} bytes, and Kafka's files {MAX_SEGMENT_SIZE} at most"))
        except OSError as error:
            if error.filename != entry.path:
                raise
            left_out.append((entry.name, "it is a link" if entry.is_symlink() else str(error.strerror)))
    return left_out
