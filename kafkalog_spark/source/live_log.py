"""State of a partition that a stream reads."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from functools import partial

from kafkalog_spark.log.read.last_stable_offset import StableOffsetWalk
from kafkalog_spark.log.read.log_end import LogEnd
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.source.watch import ListingWatch, Watch


@dataclass(slots=True)
class LiveLog:
    """State of a partition at the last look.

    Attributes:
        log: The opened log.
        topic_id: The topic ID; None before Kafka 2.8.
        directory: Watch of the partition's directory.
        segment: Watch of the last segment.
        log_start: Log start offset.
        log_end: End of the log.
        readers_end: Offset at which a reader stops: the log end offset; with read_committed the LSO.
        stable: Walk that finds the LSO.
    """

    log: PartitionLog
    topic_id: uuid.UUID | None
    directory: Watch | ListingWatch
    segment: Watch
    log_start: int = 0
    log_end: LogEnd = field(default_factory=partial(LogEnd, 0, 0))
    readers_end: int = 0
    stable: StableOffsetWalk = field(default_factory=StableOffsetWalk)
