"""Check for a log whose cleaning was interrupted: only a broker may complete it."""

from __future__ import annotations

from kafkalog_spark.errors import CorruptLog
from kafkalog_spark.format import names
from kafkalog_spark.log.read.partition_log import PartitionLog


def check_cleaned(log: PartitionLog, hint: str) -> None:
    """Raise CorruptLog if a cleaning of the log was interrupted."""
    for name in log.names:
        if name.endswith((names.SWAP_SUFFIX, names.CLEANED_SUFFIX)) and names.parse_segment_file(name):
            raise CorruptLog(f"{name} is left over from an interrupted cleaning", path=log.directory, hint=hint)
