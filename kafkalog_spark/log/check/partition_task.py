"""Checks one partition, the unit of work of a Spark task.

Partitions are checked independently of each other, and of the files of their log directories (dir_files.py).
"""

from __future__ import annotations

from collections.abc import Callable

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format import checkpoint
from kafkalog_spark.log.check.dir_files import LogDirState, check_checkpoints, has_local_log
from kafkalog_spark.log.check.finding import Findings
from kafkalog_spark.log.check.partition_check import PartitionCheck, PartitionResult
from kafkalog_spark.log.check.tier_check import TierCheck
from kafkalog_spark.log.read.partition_log import OpenHints, PartitionLocation
from kafkalog_spark.log.remote.tiered_log import TieredLocation


def check_partition(
    location: PartitionLocation,
    findings: Findings,
    state: LogDirState | None = None,
    *,
    was_closed_cleanly: bool = False,
    on_bytes: Callable[[int], None] = lambda _: None,
    decode_records: bool = False,
) -> PartitionResult | None:
    """Check a partition: its directory, its entries in the checkpoints, and its remote segments.

    Args:
        location: The partition.
        findings: Gets the faults. Faults in the files of the log directory are reported by `check_directories` instead.
        state: State of its log directory; read if it is None.
        was_closed_cleanly: The broker was stopped cleanly, so a torn tail is an error. A clean-shutdown marker also
            implies this.
        on_bytes: Called with the number of bytes that were checked since the last call.
        decode_records: Also decode the records of each batch.

    Returns:
        None if the partition was deleted during the check, or cannot be read.
    """
    result = None
    findings = findings.for_partition(f"{location.topic}-{location.partition}")
    if has_local_log(location):
        local = location.in_log_directory
        state = state or LogDirState.read(local.log_dir, local.store, Findings())
        was_closed_cleanly = was_closed_cleanly or state.is_clean_shutdown
        key = (location.topic, location.partition)
        recovery_point = state.checkpoints[checkpoint.RECOVERY_POINT_CHECKPOINT].get(key)
        log_start = state.checkpoints[checkpoint.LOG_START_OFFSET_CHECKPOINT].get(key)
        try:
            log = local.open_without_checkpoints(OpenHints(recovery_point, log_start, pass_over_damage=True))
            result = PartitionCheck(log, findings, was_closed_cleanly, on_bytes, decode_records).run()
            check_checkpoints(local, state, result, findings, was_closed_cleanly=was_closed_cleanly)
        except (KafkalogError, OSError) as error:
            # Only these errors can mean that the partition was deleted; any other OSError is a fault in any case.
            may_be_deleted = isinstance(error, KafkalogError | FileNotFoundError)
            if not may_be_deleted or local.exists():
                findings.add_unreadable(error, local.directory)
    if isinstance(location, TieredLocation):
        result = TierCheck(location, findings, on_bytes, decode_records, result or PartitionResult()).run()
    return result
