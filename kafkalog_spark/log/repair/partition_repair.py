"""Repairs one partition: its segments in order, then its leader epochs and partition.metadata."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from kafkalog_spark.errors import CorruptLog, KafkalogError, UnsupportedFormat
from kafkalog_spark.format import checkpoint, names
from kafkalog_spark.format.layout import MAX_INT32
from kafkalog_spark.format.partition_metadata import PARTITION_METADATA_FILE, write_partition_metadata
from kafkalog_spark.format.producer_snapshot import open_transactions
from kafkalog_spark.log.read.header_windows import Window
from kafkalog_spark.log.read.missing_segments import missing_segments_warning
from kafkalog_spark.log.read.partition_log import PartitionLocation, PartitionLog
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.state_files import Checkpoints, leader_epochs_or_empty
from kafkalog_spark.log.read.transaction_state import TransactionState
from kafkalog_spark.log.repair.batch_verdicts import FindBadRecords
from kafkalog_spark.log.repair.merged_log import MergedLog
from kafkalog_spark.log.repair.report import CopiedRange, PartitionReport
from kafkalog_spark.log.repair.segment_repair import RepairState, SegmentRepair


def repair_partition(
    location: PartitionLocation, log_dir: Path, *, decode_records: bool = False, checkpoints: Checkpoints | None = None
) -> PartitionReport:
    """Write the undamaged batches of a partition to a new partition directory in `log_dir`.

    Args:
        location: The partition.
        log_dir: The destination.
        decode_records: Also decode the records, and drop batches that cannot be decoded.
        checkpoints: Cache of the checkpoints of the source.

    Raises:
        OSError: If the destination cannot be written.
    """
    report = PartitionReport(location.topic, location.partition, location.directory)
    try:
        source = location.open(pass_over_damage=True, checkpoints=checkpoints)
    except KafkalogError as error:
        report.error = str(error)
        return report
    if missing := missing_segments_warning(source):
        report.unread.append(missing)
    directory = log_dir / f"{location.topic}-{location.partition}"
    directory.mkdir()
    first = source.segments[0].base_offset if source.segments else source.log_start_offset
    known_epochs = {entry.epoch: entry.start_offset for entry in leader_epochs_or_empty(source.store, source.directory)}
    transactions = TransactionState(_open_transactions_at(source, first))
    state = RepairState(first - 1, transactions, known_epochs, source.log_start_offset)
    _repair_segments(source, directory, state, report, _bad_records_finder() if decode_records else None)
    bases = [int(path.stem) for path in directory.glob(f"*{names.LOG_SUFFIX}")]
    if not bases:  # a partition has at least one segment
        for suffix in names.SEGMENT_SUFFIXES[:3]:
            (directory / (names.segment_name(first) + suffix)).touch()
    report.log_end_offset = max(state.last_offset + 1, max(bases, default=first))
    report.log_start_offset = min(source.log_start_offset, report.log_end_offset)
    report.open_transactions = dict(state.transactions.open)
    if state.epochs:
        checkpoint.write_leader_epochs(directory / checkpoint.LEADER_EPOCH_CHECKPOINT, state.epochs)
    topic_id = location.topic_id()
    if topic_id is not None:
        write_partition_metadata(directory / PARTITION_METADATA_FILE, topic_id)
    elif PARTITION_METADATA_FILE in source.names:
        report.notes.append("partition.metadata is damaged and not copied: a broker writes the topic id again")
    return report


def _bad_records_finder() -> FindBadRecords:
    from kafkalog_spark.log.check.record_check import RecordCheck  # loads Numba

    check = RecordCheck()

    def find_bad_records(window: Window) -> Iterator[int]:
        return (fault.position for fault in check.check_records(window) if fault.position is not None)

    return find_bad_records


def _repair_segments(
    source: PartitionLog,
    directory: Path,
    state: RepairState,
    report: PartitionReport,
    find_bad_records: FindBadRecords | None,
) -> None:
    """Write a segment for each segment of the source. Pieces of a segment that come from several copies are joined."""
    writer: SegmentRepair | None = None
    ends_empty = False
    for index in range(len(source.segments)):
        try:
            with source.open_segment(index) as file:
                if writer is None or not _continues_segment(file, writer, state):
                    if writer is not None:
                        writer.finish(keep_empty=False)
                    base = file.base_offset if file.base_offset > state.last_offset else file.first_offset
                    writer = SegmentRepair(base, directory, state, report)
                ends_empty = file.is_last and file.size == 0  # an empty last segment gives the log end offset
                writer.add(file, source.recovery_point, find_bad_records)
                piece = source.pieces[index] if isinstance(source, MergedLog) else None
                if piece is not None and piece.is_from_other_copy:
                    size = piece.end - piece.begin
                    report.taken.append(
                        CopiedRange(file.path, piece.begin, size, piece.first_offset, piece.next_offset)
                    )
        except (KafkalogError, FileNotFoundError) as error:
            report.unread.append(f"{source.segment_path(index)} could not be read to its end: {error}")
    if writer is not None:
        writer.finish(keep_empty=ends_empty)


def _continues_segment(file: SegmentFile, writer: SegmentRepair, state: RepairState) -> bool:
    """Return True if `file` is a piece of the segment that `writer` writes, perhaps from another copy, and fits in."""
    begins_later = file.base_offset > writer.base_offset and file.base_offset > state.last_offset
    return not file.is_whole and not begins_later and writer.size + file.size - file.begin <= MAX_INT32


def _open_transactions_at(source: PartitionLog, offset: int) -> dict[int, int]:
    """Return the transactions that are open at `offset`, by the producer snapshot of that offset, if any."""
    for snapshot_offset, path in source.snapshots_up_to(offset):
        if snapshot_offset == offset:
            with suppress(CorruptLog, UnsupportedFormat, OSError):
                return open_transactions(source.read_snapshot(path))
    return {}
