"""Where a partition lies, and how it is opened from there with what the checkpoints of its log directory say."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass

from kafkalog_spark.errors import CorruptFile, UnsupportedFormat
from kafkalog_spark.log.format.checkpoint import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    read_offset_checkpoint,
)
from kafkalog_spark.log.read.log_end import LogEnd
from kafkalog_spark.log.read.partition_log import PartitionLog

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PartitionPlace:
    """Where a partition lies. Small and picklable: a Spark task opens the partition with nothing else."""

    topic: str
    partition: int
    directory: str

    def open(self, *, pass_over_damage: bool = False, known_end: LogEnd | None = None) -> PartitionLog:
        """Read the checkpoints, then the partition; see PartitionLog. Raises NotALogDirectory."""
        parent = os.path.dirname(self.directory)
        key = (self.topic, self.partition)
        # Checkpoints first: read later, they could be ahead of what was seen of the log.
        recovery_points = offset_checkpoint(parent, RECOVERY_POINT_CHECKPOINT)
        log_starts = offset_checkpoint(parent, LOG_START_OFFSET_CHECKPOINT)
        return PartitionLog(
            self.topic,
            self.partition,
            self.directory,
            recovery_point=recovery_points.get(key),
            log_start_checkpoint=log_starts.get(key),
            pass_over_damage=pass_over_damage,
            known_end=known_end,
        )


def offset_checkpoint(directory: str, name: str) -> dict[tuple[str, int], int]:
    """A checkpoint file; a damaged one is as good as none, as it is for a broker (LogManager), but not a secret."""
    try:
        return dict(read_offset_checkpoint(os.path.join(directory, name)))
    except (CorruptFile, UnsupportedFormat, OSError) as error:
        _log.warning("checkpoint not used: %s", error)
        return {}
