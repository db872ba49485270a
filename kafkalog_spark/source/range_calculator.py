"""Division of offset ranges by minPartitions and maxRecordsPerPartition: Spark's `KafkaOffsetRangeCalculator`.

Follows SPARK-28489, SPARK-30656, SPARK-36576 and SPARK-49259, with two differences. First, `maxRecordsPerPartition`
also cuts a default read from earliest to latest, by the offsets of the log at planning; the connector computes with the
unresolved offsets -2 and -1, which look like a single record. Second, an empty range with a late-bound end is kept,
because a later action may find records in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from kafkalog_spark.errors import OptionError
from kafkalog_spark.source.offset_range import OffsetRange, cut_range

MAX_TASKS = 1_000_000
"""Limits the memory of the driver if maxRecordsPerPartition is tiny. No Spark job runs with as many tasks."""


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
    kept = [offsets for offsets in ranges if offsets.size > 0 or offsets.end_is_latest]
    pieces = [_Piece(index, offsets) for index, offsets in enumerate(kept)]
    if max_records_per_partition is not None:
        # a float division, as in the connector: exact below 2**53 offsets
        counts = [math.ceil(offsets.size / max_records_per_partition) for offsets in kept]
        pieces = _divide(pieces, counts, "maxRecordsPerPartition")
    if min_partitions is not None and 0 < sum(piece.range.size > 0 for piece in pieces) < min_partitions:
        pieces = _divide(pieces, _counts_for(pieces, min_partitions), "minPartitions")
    return [piece.range for piece in pieces]


class _Piece(NamedTuple):
    """A range, and the index of the range from which it was cut."""

    source: int
    range: OffsetRange


def _counts_for(pieces: list[_Piece], min_partitions: int) -> list[int]:
    """Return the number of parts into which each piece is cut.

    Pieces that stay uncut are excluded from the shares of the others (SPARK-36576). If one piece of a range stays
    uncut, all pieces of that range do, because the connector decides by partition.
    """
    filled = [piece for piece in pieces if piece.range.size > 0]
    total = sum(piece.range.size for piece in filled)
    uncut = [piece for piece in filled if _share(piece.range.size, total, min_partitions) == 1]
    uncut_sources = {piece.source for piece in uncut}
    remaining_size = total - sum(piece.range.size for piece in uncut)
    remaining_parts = max(min_partitions - len(uncut), 1)
    return [
        1
        if piece.range.size <= 0 or piece.source in uncut_sources
        else _share(piece.range.size, remaining_size, remaining_parts)
        for piece in pieces
    ]


def _share(size: int, total: int, parts: int) -> int:
    """Return Java's round(size / total * parts), at least 1."""
    exact = size / total * parts
    floor = math.floor(exact)
    return max(floor + (exact - floor >= 0.5), 1)


def _divide(pieces: list[_Piece], counts: list[int], option: str) -> list[_Piece]:
    """Cut each piece into as many parts as `counts` says. Raises OptionError for more than MAX_TASKS parts."""
    if sum(counts) > MAX_TASKS:
        raise OptionError(
            f"option '{option}' makes {sum(counts)} tasks of {sum(piece.range.size for piece in pieces)} offsets",
            hint=f"at most {MAX_TASKS} are allowed",
        )
    return [
        _Piece(piece.source, part)
        for piece, count in zip(pieces, counts, strict=True)
        for part in _parts(piece.range, count)
    ]


def _parts(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """Cut a range into `count` nearly equal parts, of which the last ones are larger. Empty parts are left out."""
    cuts = []
    start = whole.start
    for done in range(count):
        start += (whole.end - start) // (count - done)
        cuts.append(start)
    return cut_range(whole, cuts)
