"""Division of offset ranges by minPartitions and maxRecordsPerPartition: Spark's `KafkaOffsetRangeCalculator`.

Follows SPARK-28489, SPARK-30656, SPARK-36576 and SPARK-49259, with two differences. `maxRecordsPerPartition` also cuts
a default read from earliest to latest, by the log as planned; the connector takes the unresolved ends (-2 and -1) of
such a read for one record. And an empty range with a late-bound end is kept: a later action may find records in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from kafkalog_spark.errors import OptionError
from kafkalog_spark.source.offset_range import OffsetRange, cut_range

MAX_TASKS = 1_000_000
"""Limit on what the driver holds if maxRecordsPerPartition is tiny. No Spark job runs with as many tasks."""


def split_ranges(
    ranges: Iterable[OffsetRange], *, min_partitions: int | None = None, max_records_per_partition: int | None = None
) -> list[OffsetRange]:
    """Return the ranges cut into pieces, in the order given.

    First every range is cut into pieces of at most `max_records_per_partition` offsets. If there are then fewer pieces
    than `min_partitions`, the large ones are cut in proportion to their size, to about that many. Several ranges of one
    partition (the connector has one) are cut independently.

    Raises:
        OptionError: For more than MAX_TASKS pieces.
    """
    whole = [r for r in ranges if r.size > 0 or r.end_is_latest]
    pieces = [_Piece(i, r) for i, r in enumerate(whole)]
    if max_records_per_partition is not None:
        # a float division, as in the connector: exact below 2**53 offsets
        counts = [math.ceil(r.size / max_records_per_partition) for r in whole]
        pieces = _divide(pieces, counts, "maxRecordsPerPartition")
    if min_partitions is not None and 0 < sum(r.size > 0 for _, r in pieces) < min_partitions:
        pieces = _divide(pieces, _counts_for(pieces, min_partitions), "minPartitions")
    return [r for _, r in pieces]


class _Piece(NamedTuple):
    """A range, and the index of the range that it was cut from."""

    whole: int
    range: OffsetRange


def _counts_for(pieces: list[_Piece], min_partitions: int) -> list[int]:
    """Return the number of parts of each piece. Pieces that stay whole do not take part in the shares (SPARK-36576)."""
    filled = [(i, r.size) for i, r in pieces if r.size > 0]
    total = sum(size for _, size in filled)
    whole = [(i, size) for i, size in filled if _share(size, total, min_partitions) == 1]
    # If one piece of a range stays whole, all pieces of that range do: the connector decides by partition.
    uncut = {i for i, _ in whole}
    total -= sum(size for _, size in whole)
    wanted = max(min_partitions - len(whole), 1)
    return [1 if r.size <= 0 or i in uncut else _share(r.size, total, wanted) for i, r in pieces]


def _share(size: int, total: int, parts: int) -> int:
    """Return Java's round(size / total * parts), at least 1."""
    exact = size / total * parts
    floor = math.floor(exact)
    return max(floor + (exact - floor >= 0.5), 1)


def _divide(pieces: list[_Piece], counts: list[int], option: str) -> list[_Piece]:
    """Cut each piece into as many parts as `counts` says. Raises OptionError for more than MAX_TASKS parts."""
    if sum(counts) > MAX_TASKS:
        raise OptionError(
            f"option '{option}' makes {sum(counts)} tasks of {sum(r.size for _, r in pieces)} offsets",
            hint=f"at most {MAX_TASKS} are allowed",
        )
    return [_Piece(i, part) for (i, r), count in zip(pieces, counts, strict=True) for part in _parts(r, count)]


def _parts(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """Cut a range into `count` nearly equal parts, of which the last ones are larger. Empty parts are left out."""
    cuts = []
    start = whole.start
    for done in range(count):
        start += (whole.end - start) // (count - done)
        cuts.append(start)
    return cut_range(whole, cuts)
