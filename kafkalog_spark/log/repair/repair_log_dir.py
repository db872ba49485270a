"""Repairs log directories into a new one: partitions, checkpoints, meta.properties.

    report = repair_log_dirs(["/data/damaged"], "/data/repaired")
    print("\\n".join(report.lines()))

The source is not changed. The new directory has no clean-shutdown marker and no recovery points, so a broker that loads
it checks every batch and rebuilds the producer snapshots.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalog_spark.errors import KafkalogError, OptionError
from kafkalog_spark.format import checkpoint
from kafkalog_spark.format.checkpoint import TopicPartition
from kafkalog_spark.format.fsync import fsync_tree, make_directories
from kafkalog_spark.format.layout import MAX_SEGMENT_SIZE
from kafkalog_spark.format.meta_properties import MAX_META_PROPERTIES_BYTES, META_PROPERTIES_FILE, parse_meta_properties
from kafkalog_spark.format.names import CLUSTER_METADATA_TOPIC
from kafkalog_spark.format.regular_file import descriptor
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.replica_choice import check_one_topic
from kafkalog_spark.log.read.state_files import Checkpoints, parsed_file
from kafkalog_spark.log.remote.recorded_storage import refuse_unallowed
from kafkalog_spark.log.repair.merged_log import merged_location
from kafkalog_spark.log.repair.partition_repair import repair_partition
from kafkalog_spark.log.repair.report import PartitionReport, RepairReport
from kafkalog_spark.log.tiered.tier_options import DEFAULT_TIER_OPTIONS, TierOptions

if TYPE_CHECKING:
    from kafkalog_spark.store.storage_options import StorageOptions


_METADATA_DIR = f"{CLUSTER_METADATA_TOPIC}-0"


def repair_log_dirs(
    sources: Iterable[str | os.PathLike[str]],
    destination: str | os.PathLike[str],
    storage: StorageOptions | None = None,
    tier: TierOptions = DEFAULT_TIER_OPTIONS,
    *,
    decode_records: bool = False,
    on_partition: Callable[[PartitionReport, int], None] | None = None,
) -> RepairReport:
    """Write the undamaged batches of log directories, or of single partition directories, to a new directory.

    If several sources have copies of a partition, they are merged (merged_log.py). On return everything is on disk.

    Args:
        sources: Log directories or partition directories.
        destination: A new or empty directory, outside of the sources.
        storage: Options for object stores.
        tier: Options for remote segments.
        decode_records: Also decode the records, and drop batches that cannot be decoded.
        on_partition: Called with the report of each partition and the total number of partitions.

    Returns:
        What was kept, and what was lost.

    Raises:
        OptionError: If the destination is not empty, or is in a source or contains one, or if a source names remote
            storage that no option allows.
        NotALogDirectory: If a source is not a log directory.
        OSError: If the destination cannot be written.
    """
    dirs = LogDirs.open(sources, storage, tier)
    refuse_unallowed(dirs.locations.values())
    target = _new_directory(destination, [Path(root.path) for root in dirs.roots if not root.store.is_remote])
    report = RepairReport(str(target))
    check_one_topic(dirs.locations, dirs.copies, list(dirs.locations))
    checkpoints = Checkpoints()
    high_watermarks: dict[TopicPartition, int] = {}
    log_starts: dict[TopicPartition, int] = {}
    for tp, first in dirs.locations.items():
        location = first
        try:
            location = merged_location(dirs.copies[tp]) if tp in dirs.copies else first
        except (KafkalogError, FileNotFoundError) as error:  # continue with the other partitions
            repaired = PartitionReport(first.topic, first.partition, first.directory, error=str(error))
        else:
            repaired = repair_partition(location, target, decode_records=decode_records, checkpoints=checkpoints)
        report.partitions.append(repaired)
        start, end = repaired.log_start_offset, repaired.log_end_offset
        if repaired.error is None:
            if start:
                log_starts[tp] = start
            if location.in_log_directory.has_checkpoints:
                known = checkpoints.read(location.store, location.log_dir, checkpoint.HIGH_WATERMARK_CHECKPOINT)
                high_watermarks[tp] = min(max(known.get(tp, end), start), end)
        if on_partition is not None:
            on_partition(repaired, len(dirs.locations))
    checkpoint.write_offset_checkpoint(target / checkpoint.HIGH_WATERMARK_CHECKPOINT, high_watermarks)
    checkpoint.write_offset_checkpoint(target / checkpoint.LOG_START_OFFSET_CHECKPOINT, log_starts)
    _copy_broker_files(dirs, target, report)
    fsync_tree(target)  # the caller may delete the source as soon as this returns
    return report


def _new_directory(destination: str | os.PathLike[str], roots: list[Path]) -> Path:
    target = Path(destination).expanduser().absolute()
    for root in roots:
        if target.resolve().is_relative_to(root.resolve()) or root.resolve().is_relative_to(target.resolve()):
            raise OptionError(
                f"the destination {target} and the source {root} contain each other", hint="choose another destination"
            )
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise OptionError(f"the destination {target} is not an empty directory", hint="choose a new or empty directory")
    make_directories(target)
    return target


def _copy_broker_files(dirs: LogDirs, target: Path, report: RepairReport) -> None:
    """Copy meta.properties and KRaft's own log, each from the first source that has it."""
    for path, store in dirs.roots:
        try:
            file = os.path.join(path, META_PROPERTIES_FILE)
            data = parsed_file(store, file, _check_meta_properties, MAX_META_PROPERTIES_BYTES)
            (target / META_PROPERTIES_FILE).write_bytes(data)
            break
        except FileNotFoundError:
            continue
        except (KafkalogError, OSError) as error:
            report.notes.append(f"{META_PROPERTIES_FILE} is not copied: {error}")
    for path, store in dirs.roots:
        metadata = Path(path, _METADATA_DIR)
        if store.is_remote or not os.path.lexists(metadata):
            continue
        if metadata.is_symlink() or not metadata.is_dir():
            report.notes.append(
                f"{metadata}, KRaft's own log, is not copied: it is not a directory, or a symbolic link"
            )
            continue
        skipped = _copy_regular_files(metadata, target / _METADATA_DIR)
        report.notes.append(f"{metadata}, KRaft's own log, is copied without a check or a repair")
        report.notes += [f"{metadata / name} is not copied: {reason}" for name, reason in skipped]
        break


def _check_meta_properties(data: bytes) -> bytes:
    """Return `data` unchanged. Raises CorruptFile, UnsupportedFormat if it cannot be parsed."""
    parse_meta_properties(data)
    return data


def _copy_regular_files(source: Path, target: Path) -> list[tuple[str, str]]:
    """Copy the regular files of a directory. Returns (name, reason) of each entry that is skipped.

    Symbolic links are skipped, because they may lead out of the directory. Raises OSError if a copy cannot be written.
    """
    skipped = []
    target.mkdir()
    for entry in sorted(os.scandir(source), key=lambda entry: entry.name):
        try:
            with descriptor(entry.path, os.O_RDONLY | os.O_NOFOLLOW) as fd:
                size = os.fstat(fd).st_size
                if size <= MAX_SEGMENT_SIZE:
                    with open(fd, "rb", closefd=False) as file, open(target / entry.name, "xb") as copy:
                        shutil.copyfileobj(file, copy)
                else:
                    skipped.append((entry.name, f"it has {size} bytes, Kafka's files have at most {MAX_SEGMENT_SIZE}"))
        except OSError as error:
            if error.filename != entry.path:
                raise
            skipped.append((entry.name, "it is a link" if entry.is_symlink() else str(error.strerror)))
    return skipped
