"""One partition: its segments repaired one after the other, and the small files alongside them made anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kafkalog_spark.errors import CorruptLog, KafkalogError, UnsupportedFormat
from kafkalog_spark.log.format import names
from kafkalog_spark.log.format.checkpoint import LEADER_EPOCH_CHECKPOINT, write_leader_epochs
from kafkalog_spark.log.format.layout import MAX_INT32
from kafkalog_spark.log.format.partition_metadata import PARTITION_METADATA_FILE, PartitionMetadata
from kafkalog_spark.log.format.partition_metadata import write_partition_metadata as write_metadata
from kafkalog_spark.log.read.header_windows import Window
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.partition_place import PartitionPlace
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.small_files import leader_epochs
from kafkalog_spark.log.read.transactions import TransactionState
from kafkalog_spark.log.repair.judged_batches import FirstBad
from kafkalog_spark.log.repair.merged_log import MergedLog
from kafkalog_spark.log.repair.repair_segment import LogSoFar, SegmentRepair
from kafkalog_spark.log.repair.report import PartitionReport, Taken


def repair_partition(place: PartitionPlace, log_dir: Path, *, records: bool = False) -> PartitionReport:
    """Write the partition's good batches to a directory of its own in `log_dir`. records: batches whose records cannot
    be decoded count as damaged, too.

    What cannot be read at all is the report's `error`. Raises OSError where the destination cannot be written.
    """
    report = PartitionReport(place.topic, place.partition, place.directory)
    try:
        source = place.open(pass_over_damage=True)
    except KafkalogError as error:
        report.error = str(error)
        return report
    directory = log_dir / f"{place.topic}-{place.partition}"
    directory.mkdir()
    first = source.segments[0].base_offset if source.segments else source.log_start_offset
    log = LogSoFar(first - 1, TransactionState(_open_at(source, first)))
    _repair_segments(source, directory, log, report, _record_check() if records else None)
    if not any(directory.glob(f"*{names.LOG_SUFFIX}")):
        _empty_segment(directory, first)
    report.log_end_offset = max(log.last_offset + 1, _last_base(directory))
    report.log_start_offset = min(source.log_start_offset, report.log_end_offset)
    report.open_transactions = dict(log.transactions.open)
    if log.epochs:
        write_leader_epochs(directory / LEADER_EPOCH_CHECKPOINT, _epochs(source, log))
    topic_id = place.topic_id()
    if topic_id is not None:
        write_metadata(directory / PARTITION_METADATA_FILE, PartitionMetadata(topic_id))
    elif PARTITION_METADATA_FILE in source.names:
        report.notes.append("its partition.metadata is damaged, and left out: a broker writes the topic's id again")
    return report


def _repair_segments(
    source: PartitionLog, directory: Path, log: LogSoFar, report: PartitionReport, bad_records: FirstBad | None
) -> None:
    """A segment of the new log for each of the source, or for each that pieces of copies are of."""
    writer: SegmentRepair | None = None
    empty_end = False
    for index in range(len(source.segments)):
        try:
            with source.open_segment(index) as file:
                if writer is None or _begins_segment(file, writer, log):
                    if writer is not None:
                        writer.finish(keep_empty=False)
                    base = file.base_offset if file.base_offset > log.last_offset else file.first_offset
                    writer = SegmentRepair(base, directory, log, report)
                empty_end = file.is_last and file.size == 0  # an empty last segment says where the log goes on
                writer.add(file, source.recovery_point, bad_records)
                if isinstance(source, MergedLog) and source.pieces[index].piece.copy:
                    piece = source.pieces[index].piece
                    size = piece.end - piece.begin
                    report.taken.append(Taken(file.path, piece.begin, size, piece.first_offset, piece.next_offset))
        except (KafkalogError, FileNotFoundError) as error:
            report.notes.append(f"{source.segment_path(index)} could not be read to its end: {error}")
    if writer is not None:
        writer.finish(keep_empty=empty_end)


def _begins_segment(file: SegmentFile, writer: SegmentRepair, log: LogSoFar) -> bool:
    """Whether what is in `file` goes to a segment of its own. Pieces of one segment lie in one, with what another copy
    has of it."""
    too_large = writer.size + file.size - file.begin > MAX_INT32
    return file.is_whole or too_large or (file.base_offset > writer.base_offset and file.base_offset > log.last_offset)


def _epochs(source: PartitionLog, log: LogSoFar) -> list[tuple[int, int]]:
    """(epoch, start offset) of the batches' leader epochs; the source's checkpoint may know an earlier start, of
    batches that compaction or damage has taken away."""
    said = {entry.epoch: entry.start_offset for entry in leader_epochs(source.store, source.directory)}
    found = []
    for begun in log.epochs:
        start = said.get(begun.epoch, begun.first_batch)
        latest = max(begun.first_batch, source.log_start_offset)  # below that records were deleted
        found.append((begun.epoch, start if begun.after <= start <= latest else begun.first_batch))
    return found


def _record_check() -> FirstBad:
    """Decodes records, as kafkalog-check --records does. Imported when it is asked for: it loads Numba."""
    from kafkalog_spark.log.check.record_check import RecordCheck

    check = RecordCheck()

    def positions(window: Window) -> Iterator[int]:
        return (fault.position for fault in check.take(window) if fault.position is not None)

    return positions


def _open_at(source: PartitionLog, first: int) -> dict[int, int]:
    """Transactions open before the first batch, where a producer snapshot tells them."""
    for at, path in source.snapshots_up_to(first):
        if at == first:
            try:
                entries = source.read_snapshot(path)
            except (CorruptLog, UnsupportedFormat, OSError):
                return {}
            return {e.producer_id: e.transaction_first_offset for e in entries if e.has_open_transaction}
    return {}


def _empty_segment(directory: Path, base_offset: int) -> None:
    """A partition without a segment is none that a broker would leave."""
    for suffix in (names.LOG_SUFFIX, names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX):
        (directory / (names.segment_name(base_offset) + suffix)).touch()


def _last_base(directory: Path) -> int:
    return max(int(path.stem) for path in directory.glob(f"*{names.LOG_SUFFIX}"))
