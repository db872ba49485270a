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
    piece keeps a late-bound start and the last one a late-bound end. Both limits are positive. Several ranges of one
    partition (the connector has one) are each judged by themselves.

    Raises OptionError for more than MAX_TASKS tasks.
    """
    asked = [r for r in ranges if r.size > 0 or r.end_is_latest]
    pieces = [(i, r) for i, r in enumerate(asked)]  # each with the range it was cut from
    if max_records_per_partition is not None:
        # A float division, as in the connector: exact below 2**53 offsets.
        counts = [math.ceil(r.size / max_records_per_partition) for r in asked]
        pieces = _divide(pieces, counts, "maxRecordsPerPartition")
    if min_partitions is not None and 0 < sum(r.size > 0 for _, r in pieces) < min_partitions:
        pieces = _divide(pieces, _counts_for(pieces, min_partitions), "minPartitions")
    return [r for _, r in pieces]


_Piece = tuple[int, OffsetRange]


def _counts_for(pieces: list[_Piece], min_partitions: int) -> list[int]:
    """Into how many parts each piece goes. Small ones that stay whole are taken out before the rest is shared, or they
    would distort it (SPARK-36576)."""
    filled = [(i, r.size) for i, r in pieces if r.size > 0]
    total = sum(size for _, size in filled)
    whole = [(i, size) for i, size in filled if _share(size, total, min_partitions) == 1]
    # A range that maxRecordsPerPartition cut stays as it is if one of its pieces does: the connector asks by partition.
    uncut = {i for i, _ in whole}
    total -= sum(size for _, size in whole)
    wanted = max(min_partitions - len(whole), 1)
    return [1 if r.size <= 0 or i in uncut else _share(r.size, total, wanted) for i, r in pieces]


def _share(size: int, total: int, parts: int) -> int:
    """Java's round(size / total * parts), at least 1."""
    exact = size / total * parts
    floor = math.floor(exact)
    return max(floor + (exact - floor >= 0.5), 1)


def _divide(pieces: list[_Piece], counts: list[int], option: str) -> list[_Piece]:
    if sum(counts) > MAX_TASKS:
        raise OptionError(
            f"option '{option}' makes {sum(counts)} tasks of {sum(r.size for _, r in pieces)} offsets",
            hint=f"at most {MAX_TASKS} are allowed",
        )
    return [(i, part) for (i, r), count in zip(pieces, counts, strict=True) for part in _parts(r, count)]


def _parts(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """`count` nearly equal parts; the last ones take what integer division leaves. Empty parts are left out."""
    cuts = []
    start = whole.start
    for done in range(count):
        start += (whole.end - start) // (count - done)
        cuts.append(start)
    return cut_range(whole, cuts)
