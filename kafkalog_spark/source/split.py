"""Split: a piece of a partition that one Spark task reads, alone or together with others."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from kafkalog_spark.log.read.log_end import LogEnd
from kafkalog_spark.log.read.partition_log import PartitionLocation
from kafkalog_spark.log.read.segment_lookup import PositionHint
from kafkalog_spark.source.offset_range import OffsetRange


@dataclass(frozen=True)
class Split:
    """Offset range of one partition, with what saves the task work. Small and picklable.

    Attributes:
        location: Where the partition is.
        range: The offsets to read.
        hint: Position of the start. Checked before it is used.
        known_end: End of the log at planning, for a task that has to search for the end again. Checked too.
        topic_id: In a stream, the ID of the planned topic.
        size: About how many bytes the range has on disk.
        is_first: True for the first split of its partition in this read.
    """

    location: PartitionLocation
    range: OffsetRange
    hint: PositionHint | None = None
    known_end: LogEnd | None = None
    topic_id: uuid.UUID | None = None
    size: int = 0
    is_first: bool = True
