"""Checks log directories in one process: their files (dir_files.py), then their partitions (partition_task.py)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkalog_spark.format import names
from kafkalog_spark.format.checkpoint import TopicPartition
from kafkalog_spark.log.check.dir_files import check_directories, local_logs
from kafkalog_spark.log.check.finding import Finding, Findings
from kafkalog_spark.log.check.partition_check import PartitionResult
from kafkalog_spark.log.check.partition_task import check_partition
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.local_log_dir import log_bytes
from kafkalog_spark.log.read.partition_log import PartitionLocation
from kafkalog_spark.log.read.replica_choice import refuse_copies
from kafkalog_spark.log.remote.recorded_storage import refuse_unallowed
from kafkalog_spark.log.remote.tiered_log import LocationWithoutTopicId
from kafkalog_spark.log.tiered.tier_options import DEFAULT_TIER_OPTIONS, TierOptions

if TYPE_CHECKING:
    from kafkalog_spark.store.storage_options import StorageOptions


@dataclass(slots=True)
class CheckResult:
    """Findings and totals of a check.

    Attributes:
        findings: All findings.
        partitions: Totals of each partition that could be read.
        bytes: Number of checked bytes of .log files.
    """

    findings: Findings
    partitions: dict[TopicPartition, PartitionResult] = field(default_factory=dict)
    bytes: int = 0


def check_log_dirs(
    paths: Iterable[str | os.PathLike[str]],
    storage: StorageOptions | None = None,
    tier: TierOptions = DEFAULT_TIER_OPTIONS,
    *,
    was_closed_cleanly: bool = False,
    decode_records: bool = False,
    on_finding: Callable[[Finding], None] | None = None,
    on_bytes: Callable[[int, int], None] | None = None,
) -> CheckResult:
    """Check every file of log directories, or of single partition directories. Changes no file.

    Args:
        paths: Log directories or partition directories.
        storage: Options for object stores.
        tier: Options for remote segments.
        was_closed_cleanly: The brokers were stopped cleanly, so a torn tail or a padded index is an error. Implied by a
            clean-shutdown marker.
        decode_records: Also decode the records of each batch: a batch with a valid CRC may be malformed.
        on_finding: Called with each finding.
        on_bytes: Called with (number of checked bytes, total number of bytes).

    Returns:
        Findings and totals.

    Raises:
        NotALogDirectory: If a path is not a log directory, or if two paths have the same partition: check each path
            separately then.
        OptionError: If a log directory names remote storage that no option allows.
    """
    dirs = LogDirs.open(paths, storage, tier)
    refuse_unallowed(dirs.locations.values())
    refuse_copies(dirs.copies, dirs.copies)
    result = CheckResult(Findings(on_finding))
    states = check_directories(dirs.roots, dirs.locations, result.findings)
    total = sum(map(_bytes_of, local_logs(dirs.locations).values()))

    def count(size: int) -> None:
        result.bytes += size
        if on_bytes is not None:
            on_bytes(result.bytes, total)

    for key, location in dirs.locations.items():
        state = states.get(location.log_dir)
        if isinstance(location, LocationWithoutTopicId):
            location = location.in_log_directory  # an unreadable topic ID is a finding of its own
        checked = check_partition(
            location,
            result.findings,
            state,
            was_closed_cleanly=was_closed_cleanly,
            on_bytes=count,
            decode_records=decode_records,
        )
        if checked is not None:
            result.partitions[key] = checked
    result.findings.add_omitted()
    return result


def _bytes_of(location: PartitionLocation) -> int:
    """Return the size of a partition's .log files; 0 if it cannot be listed, which its check reports."""
    if not location.store.is_remote:
        return log_bytes(location.directory)
    try:
        files = location.store.list(location.directory).files
    except OSError:
        return 0
    return sum(facts.size for name, facts in files.items() if name.endswith(names.LOG_SUFFIX))
