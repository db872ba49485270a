"""Remote segments made up for tests of decisions."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment, TopicIdPartition

PARTITION = TopicIdPartition("orders", uuid.UUID(int=15), 3)


def epochs(given: Mapping[int, int]) -> list[EpochEntry]:
    """{epoch: start offset} as entries."""
    return [EpochEntry(*entry) for entry in given.items()]


def segment(
    start: int,
    end: int,
    given: Mapping[int, int] | None = None,
    *,
    name: int | None = None,
    time: int = 0,
    partition: TopicIdPartition = PARTITION,
) -> RemoteSegment:
    """Offsets start to end (inclusive) of the leader epochs `given`, or all of epoch 0. time: of its last event, ms."""
    entries = tuple(epochs({0: start} if given is None else given))
    named = uuid.UUID(int=hash((start, end, entries, time)) % 2**64 if name is None else name)
    return RemoteSegment(partition, named, start, end, entries, 1000, 0, 1, time)
