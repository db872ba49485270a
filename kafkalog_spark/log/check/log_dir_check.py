"""Check of log directories: all pieces (dir_files.py), in one process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkalog_spark.format import names
from kafkalog_spark.format.checkpoint import TopicPartition
from kafkalog_spark.log.check.dir_files import check_directories, local_places
from kafkalog_spark.log.check.finding import Finding, Findings
from kafkalog_spark.log.check.partition_check import PartitionResult
from kafkalog_spark.log.check.partition_task import check_partition
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.local_log_dir import log_bytes
from kafkalog_spark.log.read.partition_log import PartitionLocation
from kafkalog_spark.log.read.replica_choice import refuse_copies
from kafkalog_spark.log.remote.recorded_storage import refuse_unallowed
from kafkalog_spark.log.remote.tiered_log import LocationWithoutTopicId
from kafkalog_spark.log.tiered.tier_options import NO_TIER, TierOptions

if TYPE_CHECKING:
    from kafkalog_spark.store.storage_options import StorageOptions


@dataclass(slots=True)
class CheckResult:
    """Totals of a check, and its findings. bytes: of .log files."""

    findings: Findings
    partitions: dict[TopicPartition, PartitionResult] = field(default_factory=dict)
    bytes: int = 0


def check_log_dirs(
    paths: Iterable[str | os.PathLike[str]],
    storage: StorageOptions | None = None,
    tier: TierOptions = NO_TIER,
    *,
    closed: bool = False,
    records: bool = False,
    on_finding: Callable[[Finding], None] | None = None,
    on_bytes: Callable[[int, int], None] | None = None,
) -> CheckResult:
    """Look at every file of log directories, or of single partition directories. Changes nothing.

    closed: the brokers were stopped cleanly, so that a torn tail or a padded index is an error; a directory with a
    clean-shutdown marker is taken so anyway. records: decode them, too: a valid CRC does not say that they can be read.
    storage: how object stores are reached; tier: of remote segments. on_bytes: called with (bytes done, bytes in all).
    Raises NotALogDirectory when a path is none, or where a partition lies in two of them: each is checked alone;
    OptionError for remote storage that a log directory names and no option allows.
    """
    dirs = LogDirs.open(paths, storage, tier)
    refuse_unallowed(dirs.locations.values())
    refuse_copies(dirs.copies, dirs.copies)
    result = CheckResult(Findings(on_finding))
    of_path = check_directories(dirs.roots, dirs.locations, result.findings)
    total = sum(map(_bytes_of, local_places(dirs.locations).values()))

    def count(size: int) -> None:
        result.bytes += size
        if on_bytes is not None:
            on_bytes(result.bytes, total)

    for key, place in dirs.locations.items():
        files = of_path.get(place.log_dir)
        if isinstance(place, LocationWithoutTopicId):
            place = place.local  # an unreadable topic ID is a finding of its own
        checked = check_partition(place, result.findings, files, closed=closed, on_bytes=count, records=records)
        if checked is not None:
            result.partitions[key] = checked
    result.findings.tell_rest()
    return result


def _bytes_of(place: PartitionLocation) -> int:
    """Bytes of a partition's .log files; 0 when it cannot be listed: whoever opens it says what is wrong."""
    if not place.store.remote:
        return log_bytes(place.directory)
    try:
        files = place.store.list(place.directory).files
    except OSError:
        return 0
    return sum(facts.size for name, facts in files.items() if name.endswith(names.LOG_SUFFIX))
