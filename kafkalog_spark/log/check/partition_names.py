"""Checks the names in a partition directory. No file is opened, except to explain why there are no segments."""

from __future__ import annotations

import os

from kafkalog_spark.format import names
from kafkalog_spark.format.partition_metadata import OWN_FILES, UNFINISHED
from kafkalog_spark.log.check.finding import Fault, Findings, Severity
from kafkalog_spark.log.read.missing_segments import hint_from_content
from kafkalog_spark.log.read.partition_listing import compressed_segments, has_segment, is_new_partition
from kafkalog_spark.log.read.partition_log import PartitionLog


def check_names(log: PartitionLog, findings: Findings) -> None:
    """Report files that belong to no live segment and that no broker expects, and what a broker will do with each."""
    live = {
        name
        for segment in log.segments
        for name in (segment.log, segment.offset_index, segment.time_index, segment.transaction_index)
    }
    for name in sorted(set(log.names) - live - OWN_FILES):
        fault = _fault_of_name(name)
        if fault is not None:
            severity, text = fault
            findings.add(severity, os.path.join(log.directory, name), Fault(text))


def _fault_of_name(name: str) -> tuple[Severity, str] | None:
    """Return what is wrong with a file that belongs to no live segment; None if nothing is."""
    leftover = "left over from a cleaning or a crash; the next start of a broker removes it"
    file = names.parse_segment_file(name)
    if file is None:
        if compressed_segments([name]):
            return Severity.ERROR, "compressed segment file, which readers skip: decompress it"
        return Severity.NOTE, leftover if name in UNFINISHED else "not a file of a partition"
    if file.transient_suffix == names.DELETED_SUFFIX:
        text = "file of a deleted segment; a broker removes it after file.delete.delay.ms, or at its start"
        return Severity.NOTE, text
    if file.transient_suffix is not None or file.suffix == names.LOG_SUFFIX:
        return Severity.NOTE, leftover
    if file.suffix == names.PRODUCER_SNAPSHOT_SUFFIX:
        return None
    return Severity.NOTE, "index without a .log; the next start of a broker removes it"


def check_has_segments(log: PartitionLog, findings: Findings) -> None:
    """Report a directory without a .log: an error, because a broker writes the first one before all other files.

    It is only a note if the directory is empty (a crash while the partition was created), or has only
    partition.metadata (the sink creates it first in a bucket).
    """
    if log.segments or log.is_deleted:
        return
    listing = log.store.list(log.directory)
    if has_segment(listing):
        return  # created since the log was opened
    hint = hint_from_content(log.directory, log.store, listing)
    fault = Fault("holds no segment (.log file)" + (f": {hint}" if hint else ""))
    may_be_new = not listing.names or is_new_partition(listing)
    findings.add(Severity.NOTE if may_be_new else Severity.ERROR, log.directory, fault)
