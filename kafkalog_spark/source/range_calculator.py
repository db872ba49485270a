"""Cutting offset ranges into tasks by `maxRecordsPerPartition` and `minPartitions`: Spark's KafkaOffsetRangeCalculator.

Same tasks as the connector (SPARK-28489, SPARK-30656, SPARK-36576, SPARK-49259), two things apart. Sizes are those of
the log as planned, so `maxRecordsPerPartition` also cuts a default read from earliest to latest; the connector takes
its unresolved ends (-2 and -1) for one record there. And an empty range whose end is late-bound stays: a later action
on the DataFrame may find records in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from kafkalog_spark.errors import OptionError
from kafkalog_spark.source.bounds import OffsetRange, cut_range

MAX_TASKS = 1_000_000
"""More than any Spark job runs with; a limit on what the driver holds when maxRecordsPerPartition is tiny."""


def split_ranges(
    ranges: Iterable[OffsetRange], *, min_partitions: int | None = None, max_records_per_partition: int | None = None
) -> list[OffsetRange]:
    """The ranges cut into one task each, in the order given; every offset in exactly one of them.

    First no range is left larger than `max_records_per_partition` offsets; then, if there are fewer than
    `min_partitions`, large ranges are cut in proportion to their size, to about that many. Of a cut range the first
    piece keeps a late-bound start and the last one a late-bound end. Both limits are positive.

    Raises OptionError for more than MAX_TASKS tasks.
    """
    result = [r for r in ranges if r.size > 0 or r.end_is_latest]
    if max_records_per_partition is not None:
        # A float division, as in the connector: exact below 2**53 offsets.
        counts = [math.ceil(r.size / max_records_per_partition) for r in result]
        result = _divide(result, counts, "maxRecordsPerPartition")
    filled = [r for r in result if r.size > 0]
    if min_partitions is not None and 0 < len(filled) < min_partitions:
        result = _divide(result, _counts_for(filled, result, min_partitions), "minPartitions")
    return result


def _counts_for(filled: list[OffsetRange], ranges: list[OffsetRange], min_partitions: int) -> list[int]:
    """Into how many parts each range goes. Small ranges that stay whole are taken out before the rest is shared, or
    they would distort it (SPARK-36576)."""
    total = sum(r.size for r in filled)
    whole = [r for r in filled if _share(r.size, total, min_partitions) == 1]
    # By partition, not by range: what maxRecordsPerPartition cut into pieces is one partition to the connector.
    whole_partitions = {r.topic_partition for r in whole}
    total -= sum(r.size for r in whole)
    wanted = max(min_partitions - len(whole), 1)
    return [
        1 if r.size <= 0 or r.topic_partition in whole_partitions else _share(r.size, total, wanted) for r in ranges
    ]


def _share(size: int, total: int, parts: int) -> int:
    """Java's round(size / total * parts), at least 1."""
    exact = size / total * parts
    floor = math.floor(exact)
    return max(floor + (exact - floor >= 0.5), 1)


def _divide(ranges: list[OffsetRange], counts: list[int], option: str) -> list[OffsetRange]:
    if sum(counts) > MAX_TASKS:
        raise OptionError(
            f"option '{option}' makes {sum(counts)} tasks of {sum(r.size for r in ranges)} offsets",
            hint=f"at most {MAX_TASKS} are allowed",
        )
    return [part for r, count in zip(ranges, counts, strict=True) for part in _parts(r, count)]


def _parts(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """`count` nearly equal parts; the last ones take what integer division leaves. Empty parts are left out."""
    cuts = []
    start = whole.start
    for done in range(count):
        start += (whole.end - start) // (count - done)
        cuts.append(start)
    return cut_range(whole, cuts)
