"""Check of one partition: the unit of work of a task."""

from __future__ import annotations

from collections.abc import Callable

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format import checkpoint
from kafkalog_spark.log.check.dir_files import DirFiles, _check_checkpoints, _is_local
from kafkalog_spark.log.check.finding import Findings
from kafkalog_spark.log.check.partition_check import PartitionCheck, PartitionResult
from kafkalog_spark.log.check.tier_check import TierCheck
from kafkalog_spark.log.read.partition_log import OpenHints, PartitionLocation
from kafkalog_spark.log.remote.tiered_log import TieredLocation


def check_partition(
    place: PartitionLocation,
    findings: Findings,
    files: DirFiles | None = None,
    *,
    closed: bool = False,
    on_bytes: Callable[[int], None] = lambda _: None,
    records: bool = False,
) -> PartitionResult | None:
    """Check a partition: its directory, its entries in the checkpoints, its remote segments. None when nothing of it
    can be read, or it is gone. files: of its log directory, whose own faults are for check_directories to tell."""
    result = None
    findings = findings.of(f"{place.topic}-{place.partition}")
    if _is_local(place):
        local = place.local
        files = files or DirFiles.read(local.log_dir, local.store, Findings())
        closed = closed or files.closed
        key = (place.topic, place.partition)
        recovery_point = files.checkpoints[checkpoint.RECOVERY_POINT_CHECKPOINT].get(key)
        log_start = files.checkpoints[checkpoint.LOG_START_OFFSET_CHECKPOINT].get(key)
        try:
            log = local.open_unread(OpenHints(recovery_point, log_start, pass_over_damage=True))
            result = PartitionCheck(log, findings, closed, on_bytes, records).run()
            _check_checkpoints(local, files, result, findings, closed=closed)
        except (KafkalogError, OSError) as error:
            is_missing = isinstance(error, KafkalogError | FileNotFoundError)  # another OSError says nothing about that
            if not is_missing or local.exists():
                findings.add_unreadable(error, local.directory)
    if isinstance(place, TieredLocation):
        result = TierCheck(place, findings, on_bytes, records, result or PartitionResult()).run()
    return result
