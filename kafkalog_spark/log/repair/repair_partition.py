"""One partition: its segments repaired one after the other, and the small files beside them made anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kafkalog_spark.errors import CorruptLog, KafkalogError, UnsupportedFormat
from kafkalog_spark.log.format import names
from kafkalog_spark.log.format.checkpoint import LEADER_EPOCH_CHECKPOINT, write_leader_epochs
from kafkalog_spark.log.format.partition_metadata import PARTITION_METADATA_FILE, PartitionMetadata
from kafkalog_spark.log.format.partition_metadata import write_partition_metadata as write_metadata
from kafkalog_spark.log.read.header_windows import Window
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.partition_place import PartitionPlace
from kafkalog_spark.log.read.small_files import leader_epochs
from kafkalog_spark.log.read.transactions import TransactionState
from kafkalog_spark.log.repair.repair_segment import FirstBad, LogSoFar, SegmentRepair
from kafkalog_spark.log.repair.report import PartitionReport


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
    for index in range(len(source.segments)):
        try:
            _repair_segment(source, index, directory, log, report, records)
        except (KafkalogError, FileNotFoundError) as error:
            report.notes.append(f"{source.segment_path(index)} could not be read to its end: {error}")
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


def _repair_segment(
    source: PartitionLog, index: int, directory: Path, log: LogSoFar, report: PartitionReport, records: bool
) -> None:
    with source.open_segment(index) as file:
        kept = SegmentRepair(file, directory, log, report).run(
            source.recovery_point, _record_check() if records else None
        )
        path = directory / (names.segment_name(file.base_offset) + names.LOG_SUFFIX)
    # An empty last segment says where the log goes on.
    if not kept and not (file.is_last and file.size == 0):
        for suffix in names.SEGMENT_SUFFIXES:
            path.with_suffix(suffix).unlink(missing_ok=True)


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
