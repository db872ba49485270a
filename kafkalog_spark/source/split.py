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
    """Offset range of one partition, with facts from planning that save the task work. Small and picklable.

    Attributes:
        location: Location of the partition.
        range: The offsets to read.
        hint: Position of the start. The task checks it before it uses it.
        known_end: End of the log at planning, for a task that has to search for the end again. Checked, too.
        topic_id: ID of the topic at planning; None in a batch query.
        size: Estimated bytes of the range on disk.
        is_first: True for the first split of its partition in this read.
    """

    location: PartitionLocation
    range: OffsetRange
    hint: PositionHint | None = None
    known_end: LogEnd | None = None
    topic_id: uuid.UUID | None = None
    size: int = 0
    is_first: bool = True
