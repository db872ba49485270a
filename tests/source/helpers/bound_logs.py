"""Short constructors of logs and bounds for tests of bounds."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalog_spark.source.bound_resolution import LogBounds
from kafkalog_spark.source.bounds import Bound
from kafkalog_spark.source.offset_range import OffsetRange

T0, T1, T2 = ("t", 0), ("t", 1), ("t", 2)

LOST = (
    "Some data may have been lost because they are not available in Kafka any more; either the data was aged out by "
    "Kafka or the topic may have been deleted before all the data in the topic was processed. If you don't want your "
    "query to fail on such cases, set the source option failOnDataLoss to false. Reason: "
)


def log(start: int, end: int, timestamps: Sequence[int] | None = None) -> LogBounds:
    """Offsets [start, end); the record at `start + i` has timestamp `timestamps[i]`."""

    def offset_for_timestamp(wanted: int) -> int | None:
        assert timestamps is not None, "no bound by timestamp was given"
        return next((start + i for i, timestamp in enumerate(timestamps) if timestamp >= wanted), None)

    return LogBounds(start, end, offset_for_timestamp)


def offsets(by_partition: dict[tuple[str, int], int], **topics: int) -> Bound:
    return Bound(partitions=by_partition, topics=topics)


def edges(ranges: list[OffsetRange]) -> list[tuple[int, int]]:
    return [(r.start, r.end) for r in ranges]
