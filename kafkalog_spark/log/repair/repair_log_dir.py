"""A whole log directory, repaired into a new one: partitions, checkpoints, meta.properties.

    report = repair_log_dirs(["/data/damaged"], "/data/repaired")
    print("\\n".join(report.lines()))

Nothing in the source is changed. There is no clean-shutdown marker in what is made, and no recovery point: a broker
that loads it looks at every batch, makes its producer snapshots, and trusts nothing that is said here.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalog_spark.errors import KafkalogError, OptionError
from kafkalog_spark.log.format.checkpoint import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    TopicPartition,
    write_offset_checkpoint,
)
from kafkalog_spark.log.format.durable import descriptor
from kafkalog_spark.log.format.layout import MAX_SEGMENT_SIZE
from kafkalog_spark.log.format.meta_properties import META_PROPERTIES_FILE, MOST_BYTES, parse_meta_properties
from kafkalog_spark.log.format.names import CLUSTER_METADATA_TOPIC
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.partition_place import PartitionPlace
from kafkalog_spark.log.read.replicas import check_one_topic
from kafkalog_spark.log.read.small_files import offset_checkpoint, parsed_file
from kafkalog_spark.log.repair.merged_log import merged_place
from kafkalog_spark.log.repair.repair_partition import repair_partition
from kafkalog_spark.log.repair.report import PartitionReport, RepairReport

if TYPE_CHECKING:
    from kafkalog_spark.log.store.interface import Store
    from kafkalog_spark.log.store.storage_options import StorageOptions

_METADATA_DIR = f"{CLUSTER_METADATA_TOPIC}-0"


def repair_log_dirs(
    sources: Iterable[str | os.PathLike[str]],
    destination: str | os.PathLike[str],
    storage: StorageOptions | None = None,
    *,
    records: bool = False,
    on_partition: Callable[[PartitionReport, int], None] | None = None,
) -> RepairReport:
    """Write what is good in log directories, or single partitions' directories, to the new directory `destination`.

    Of a partition that lies in several of them, the copy is taken that a read takes (replicas), and what is damaged in
    it from the others (merged_copies). records: decode every record; batches that cannot be are lost, too.
    on_partition: called with each partition, and how many there are. Raises OptionError for a destination that is not
    new and empty, or lies in a source; NotALogDirectory for a source;
    OSError where the destination cannot be written.
    """
    dirs = LogDirs.open(sources, storage)
    target = _new_directory(destination, [Path(root.path) for root in dirs.roots if not root.store.remote])
    report = RepairReport(str(target))
    check_one_topic(dirs.places, dirs.copies, list(dirs.places))
    marks: dict[TopicPartition, int] = {}
    for tp, first in dirs.places.items():
        found, place = _repaired(first, dirs.copies.get(tp, ()), target, records=records)
        report.partitions.append(found)
        if found.error is None and place.local.has_checkpoints:
            said = offset_checkpoint(place.store, place.log_dir, HIGH_WATERMARK_CHECKPOINT).get(
                tp, found.log_end_offset
            )
            marks[tp] = min(max(said, found.log_start_offset), found.log_end_offset)
        if on_partition is not None:
            on_partition(found, len(dirs.places))
    write_offset_checkpoint(target / HIGH_WATERMARK_CHECKPOINT, marks)
    starts = {(one.topic, one.partition): one.log_start_offset for one in report.partitions if one.error is None}
    write_offset_checkpoint(target / LOG_START_OFFSET_CHECKPOINT, {tp: at for tp, at in starts.items() if at})
    _copy_of_broker(dirs, target, report)
    return report


def _repaired(
    place: PartitionPlace, copies: Sequence[PartitionPlace], target: Path, *, records: bool
) -> tuple[PartitionReport, PartitionPlace]:
    """A partition, made of its copies where there are several; and where it was read. What cannot be read is its
    report's error: the other partitions go on."""
    try:
        place = merged_place(copies) if copies else place
    except (KafkalogError, FileNotFoundError) as error:
        return PartitionReport(place.topic, place.partition, place.directory, error=str(error)), place
    return repair_partition(place, target, records=records), place


def _new_directory(destination: str | os.PathLike[str], roots: list[Path]) -> Path:
    target = Path(destination).expanduser().absolute()
    for root in roots:
        if target.resolve().is_relative_to(root.resolve()) or root.resolve().is_relative_to(target.resolve()):
            raise OptionError(
                f"the destination {target} and the source {root} lie in each other", hint="choose another"
            )
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise OptionError(f"the destination {target} is not an empty directory", hint="nothing is repaired in place")
    target.mkdir(parents=True, exist_ok=True)
    return target


def _copy_of_broker(dirs: LogDirs, target: Path, report: RepairReport) -> None:
    """meta.properties, and of KRaft's own log what there is; of several directories, of the first that has it."""
    for path, store in dirs.roots:
        try:
            (target / META_PROPERTIES_FILE).write_bytes(_meta_properties(path, store))
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


def _meta_properties(path: str, store: Store) -> bytes:
    """The file's bytes. Raises KafkalogError for those of no meta.properties, FileNotFoundError, OSError."""

    def whole(data: bytes) -> bytes:
        parse_meta_properties(data)
        return data

    return parsed_file(store, os.path.join(path, META_PROPERTIES_FILE), whole, MOST_BYTES)


def _copy_regular_files(source: Path, target: Path) -> list[tuple[str, str]]:
    """Copy the files of a directory; names and reasons of what is left out. No link is followed: it may lead out of
    the source. Raises OSError where the target cannot be written."""
    left_out = []
    target.mkdir()
    for entry in sorted(os.scandir(source), key=lambda entry: entry.name):
        try:
            with descriptor(entry.path, os.O_RDONLY | os.O_NOFOLLOW) as fd:
                size = os.fstat(fd).st_size
                if size <= MAX_SEGMENT_SIZE:
                    _copy(fd, target / entry.name)
                else:
                    left_out.append((entry.name, f"it has {size} bytes, and Kafka's files {MAX_SEGMENT_SIZE} at most"))
        except OSError as error:
            if error.filename != entry.path:
                raise
            left_out.append((entry.name, "it is a link" if entry.is_symlink() else str(error.strerror)))
    return left_out


def _copy(fd: int, target: Path) -> None:
    with open(fd, "rb", closefd=False) as file, open(target, "xb") as copy:
        shutil.copyfileobj(file, copy)
