"""A whole log directory, repaired into a new one: partitions, checkpoints, meta.properties.

    report = repair_log_dirs(["/data/damaged"], "/data/repaired")
    print("\\n".join(report.lines()))

Nothing in the source is changed. There is no clean-shutdown marker in what is made, and no recovery point: a broker
that loads it looks at every batch, makes its producer snapshots, and trusts nothing that is said here.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kafkalog_spark.errors import CorruptBatch, CorruptLog, KafkalogError, OptionError, UnsupportedFormat
from kafkalog_spark.format import checkpoint, layout, names
from kafkalog_spark.format.atomic_file import descriptor, fsync_tree, make_directories, write_all
from kafkalog_spark.format.batch_header import control_type
from kafkalog_spark.format.checkpoint import EpochEntry, TopicPartition
from kafkalog_spark.format.layout import MAX_INT32, MAX_SEGMENT_SIZE, NO_LEADER_EPOCH, NO_TIMESTAMP, H
from kafkalog_spark.format.meta_properties import META_PROPERTIES_FILE, MOST_BYTES, parse_meta_properties
from kafkalog_spark.format.names import CLUSTER_METADATA_TOPIC
from kafkalog_spark.format.partition_metadata import PARTITION_METADATA_FILE, write_partition_metadata
from kafkalog_spark.format.producer_snapshot import open_transactions
from kafkalog_spark.format.transaction_index import format_transaction
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.header_windows import Table
from kafkalog_spark.log.read.last_stable_offset import TransactionState
from kafkalog_spark.log.read.missing_segments import explain_log
from kafkalog_spark.log.read.partition_log import PartitionLocation, PartitionLog
from kafkalog_spark.log.read.replica_choice import check_one_topic
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.state_files import Checkpoints, leader_epochs, parsed_file
from kafkalog_spark.log.remote.recorded_storage import refuse_unallowed
from kafkalog_spark.log.repair.damaged_segment import Damage, FirstBad, end_of, judged_batches
from kafkalog_spark.log.repair.merged_log import MergedLog, merged_location
from kafkalog_spark.log.repair.report import Loss, PartitionReport, RepairReport, Taken, key_text, lost_keys
from kafkalog_spark.log.tiered.tier_options import NO_TIER, TierOptions
from kafkalog_spark.log.write.segment_recovery import IndexBuilder
from kafkalog_spark.log.write.segment_roll import INDEX_INTERVAL_BYTES

if TYPE_CHECKING:
    from kafkalog_spark.store.storage_options import StorageOptions


# One segment: good batches copied byte for byte, its indexes made anew.

_COPY = 8 << 20
_OF_TRANSACTIONS = layout.ATTRIBUTE_TRANSACTIONAL | layout.ATTRIBUTE_CONTROL


@dataclass(slots=True)
class LogSoFar:
    """State of a repair that one segment passes on to the next. known_epochs: start offsets by the source's checkpoint,
    which may know of epochs before the batches; log_start: below it records were deleted."""

    last_offset: int
    transactions: TransactionState
    known_epochs: Mapping[int, int]
    log_start: int
    leader_epoch: int = NO_LEADER_EPOCH
    epochs: list[EpochEntry] = field(default_factory=list)
    timestamp: int = NO_TIMESTAMP
    pending: list[Loss] = field(default_factory=list)
    """Losses of this segment after which nothing has been kept yet."""


class SegmentRepair:
    """Writes a segment to `directory`: what is good in a file, or in parts of several. `finish` ends it."""

    def __init__(self, base_offset: int, directory: Path, log: LogSoFar, report: PartitionReport) -> None:
        self._log = log
        self._report = report
        self._path = directory / (names.segment_name(base_offset) + names.LOG_SUFFIX)
        self._indexes = IndexBuilder(base_offset, INDEX_INTERVAL_BYTES)
        self._aborts_before = len(log.transactions.aborted)
        self.base_offset = base_offset
        self.size = 0
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)

    def add(self, file: SegmentFile, recovery_point: int | None, bad_records: FirstBad | None = None) -> None:
        """Copy what is good in a file, after what has been copied. Raises OSError, NotALogDirectory."""
        self._report.bytes_before += file.size - file.begin
        log = self._log
        for part in judged_batches(file, log.last_offset, log.leader_epoch, recovery_point, bad_records):
            if not isinstance(part, Damage):
                self._copy(file, part.table, part.epochs)
                continue
            keys, records = lost_keys(file, part.position, part.size)
            shown, before = tuple(map(key_text, keys)), None if log.timestamp == NO_TIMESTAMP else log.timestamp
            place = (file.path, part.position, part.size, part.error)
            log.pending.append(Loss(*place, log.last_offset + 1, None, before, keys=shown, keys_read=records))

    def finish(self, *, keep_empty: bool) -> None:
        """Write the indexes. Nothing is left of a segment without batches, unless keep_empty."""
        os.close(self._fd)
        self._report.losses += self._log.pending
        self._log.pending.clear()
        self._report.bytes_kept += self.size
        if not self.size and not keep_empty:
            self._path.unlink()
            return
        offsets, times = self._indexes.finished()
        self._path.with_suffix(names.OFFSET_INDEX_SUFFIX).write_bytes(offsets)
        self._path.with_suffix(names.TIME_INDEX_SUFFIX).write_bytes(times)
        aborted = self._log.transactions.aborted[self._aborts_before :]
        if aborted:
            entries = b"".join(format_transaction(entry) for entry in aborted)
            self._path.with_suffix(names.TRANSACTION_INDEX_SUFFIX).write_bytes(entries)

    def _copy(self, file: SegmentFile, run: Table, epochs: np.ndarray) -> None:
        """Neighbours in the file."""
        start, end = int(run[0, H.POSITION]), end_of(run[-1])
        moved = run.copy()
        moved[:, H.POSITION] += self.size - start
        position = start
        while position < end:
            piece = file.read(position, min(_COPY, end - position))
            if not piece:
                raise FileNotFoundError(errno.ENOENT, "the file became shorter while it was read", file.path)
            write_all(self._fd, piece)
            position += len(piece)
        for row in np.flatnonzero((epochs != run[:, H.LEADER_EPOCH]) & (run[:, H.MAGIC] == 2)).tolist():
            at = int(moved[row, H.POSITION]) + layout.LEADER_EPOCH_AT
            os.pwrite(self._fd, int(epochs[row]).to_bytes(4, "big", signed=True), at)
            self._report.epochs_rewritten += 1
        self.size += end - start
        self._indexes.add(moved)
        self._report.batches += len(run)
        self._follow(file, run, epochs)

    def _follow(self, file: SegmentFile, run: Table, epochs: np.ndarray) -> None:
        """Note what later batches and the partition's small files need of these batches."""
        log = self._log
        first, timestamp = int(run[0, H.BASE_OFFSET]), int(run[0, H.MAX_TIMESTAMP])
        after = None if timestamp == NO_TIMESTAMP else timestamp
        self._report.losses += [replace(loss, next_offset=first, timestamp_after=after) for loss in log.pending]
        log.pending.clear()
        changes = np.flatnonzero(np.diff(np.concatenate(([log.leader_epoch], epochs))) > 0)
        ends = [log.last_offset, *run[:, H.LAST_OFFSET].tolist()]
        for row in changes.tolist():
            epoch, start = int(epochs[row]), int(run[row, H.BASE_OFFSET])
            known = log.known_epochs.get(epoch, start)
            fits = ends[row] < known <= max(start, log.log_start)
            log.epochs.append(EpochEntry(epoch, known if fits else start))
        log.leader_epoch = int(epochs[-1])
        log.last_offset = int(run[-1, H.LAST_OFFSET])
        log.timestamp = int(run[-1, H.MAX_TIMESTAMP])
        flags = run[:, H.ATTRIBUTES] & _OF_TRANSACTIONS
        for row in np.flatnonzero((flags != 0) & (run[:, H.MAGIC] == 2) & (run[:, H.COUNT] > 0)).tolist():
            header = file.header_at(int(run[row, H.POSITION]))
            assert header is not None
            if not header.is_control:
                log.transactions.data_batch(header)
                continue
            try:
                log.transactions.marker(header, control_type(file.read(header.position, header.size)))
            except CorruptBatch:
                continue  # the check says so; it ends nothing


# One partition: its segments repaired one after the other, and the small files alongside them made anew.


def repair_partition(
    place: PartitionLocation, log_dir: Path, *, records: bool = False, checkpoints: Checkpoints | None = None
) -> PartitionReport:
    """Write the partition's good batches to a directory of its own in `log_dir`. records: batches whose records cannot
    be decoded count as damaged, too. Raises OSError where the destination cannot be written."""
    report = PartitionReport(place.topic, place.partition, place.directory)
    try:
        source = place.open(pass_over_damage=True, checkpoints=checkpoints)
    except KafkalogError as error:
        report.error = str(error)
        return report
    if missing := explain_log(source):
        report.unread.append(missing)
    directory = log_dir / f"{place.topic}-{place.partition}"
    directory.mkdir()
    first = source.segments[0].base_offset if source.segments else source.log_start_offset
    known_epochs = {entry.epoch: entry.start_offset for entry in leader_epochs(source.store, source.directory)}
    transactions = TransactionState(_open_at(source, first))
    log = LogSoFar(first - 1, transactions, known_epochs, source.log_start_offset)
    bad_records: FirstBad | None = None
    if records:
        from kafkalog_spark.log.check.segment_check import RecordCheck  # loads Numba

        check = RecordCheck()
        bad_records = lambda window: (fault.position for fault in check.take(window) if fault.position is not None)  # noqa: E731
    _repair_segments(source, directory, log, report, bad_records)
    bases = [int(path.stem) for path in directory.glob(f"*{names.LOG_SUFFIX}")]
    if not bases:  # no broker leaves a partition without a segment
        for suffix in names.SEGMENT_SUFFIXES[:3]:
            (directory / (names.segment_name(first) + suffix)).touch()
    report.log_end_offset = max(log.last_offset + 1, max(bases, default=first))
    report.log_start_offset = min(source.log_start_offset, report.log_end_offset)
    report.open_transactions = dict(log.transactions.open)
    if log.epochs:
        checkpoint.write_leader_epochs(directory / checkpoint.LEADER_EPOCH_CHECKPOINT, log.epochs)
    topic_id = place.topic_id()
    if topic_id is not None:
        write_partition_metadata(directory / PARTITION_METADATA_FILE, topic_id)
    elif PARTITION_METADATA_FILE in source.names:
        report.notes.append("its partition.metadata is damaged, and left out: a broker writes the topic's id again")
    return report


def _repair_segments(
    source: PartitionLog, directory: Path, log: LogSoFar, report: PartitionReport, bad_records: FirstBad | None
) -> None:
    """Make a segment for each of the source, or for each that pieces of copies are of."""
    writer: SegmentRepair | None = None
    empty_end = False
    for index in range(len(source.segments)):
        try:
            with source.open_segment(index) as file:
                # Pieces of one segment lie in one, with what another copy has of it.
                if (
                    writer is None
                    or file.is_whole
                    or writer.size + file.size - file.begin > MAX_INT32
                    or (file.base_offset > writer.base_offset and file.base_offset > log.last_offset)
                ):
                    if writer is not None:
                        writer.finish(keep_empty=False)
                    base = file.base_offset if file.base_offset > log.last_offset else file.first_offset
                    writer = SegmentRepair(base, directory, log, report)
                empty_end = file.is_last and file.size == 0  # an empty last segment says where the log goes on
                writer.add(file, source.recovery_point, bad_records)
                piece = source.pieces[index] if isinstance(source, MergedLog) else None
                if piece is not None and piece.from_other_copy:
                    size = piece.end - piece.begin
                    report.taken.append(Taken(file.path, piece.begin, size, piece.first_offset, piece.next_offset))
        except (KafkalogError, FileNotFoundError) as error:
            report.unread.append(f"{source.segment_path(index)} could not be read to its end: {error}")
    if writer is not None:
        writer.finish(keep_empty=empty_end)


def _open_at(source: PartitionLog, first: int) -> dict[int, int]:
    """Transactions open before the first batch, where a producer snapshot tells them."""
    for at, path in source.snapshots_up_to(first):
        if at == first:
            with suppress(CorruptLog, UnsupportedFormat, OSError):
                return open_transactions(source.read_snapshot(path))
    return {}


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
