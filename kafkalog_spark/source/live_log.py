"""A live partition as a stream saw it last."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from kafkalog_spark.log.read.last_stable_offset import StableOffsetWalk
from kafkalog_spark.log.read.log_end import LogEnd
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.partition_place import PartitionPlace
from kafkalog_spark.source.watch import ListingWatch, Unchanged, Watch

_NOT_YET = LogEnd(0, 0)


@dataclass(slots=True)
class LiveLog:
    """A partition as of the last look.

    `topic_id`: None before Kafka 2.8. `log_end` is the log's; `readers_end` where readers have to stop: the same, or
    the LSO with read_committed.
    """

    place: PartitionPlace
    log: PartitionLog
    topic_id: uuid.UUID | None
    directory: Watch | ListingWatch
    segment: Watch | Unchanged
    log_start: int = 0
    log_end: LogEnd = _NOT_YET
    readers_end: int = 0
    stable: StableOffsetWalk = field(default_factory=StableOffsetWalk)
