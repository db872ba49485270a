"""Offset range of a partition, and which of its sides are late-bound."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kafkalog_spark.source.topic_partitions import TopicPartition


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets [start, end) of a partition.

    Attributes:
        start_is_earliest: The start is late-bound: `start` is the log start of planning, and a task looks it up again
            (`bound_resolution.rebind`).
        end_is_latest: The same for the end.
        from_earliest: This range, or the one that it was cut from, starts at earliest. It is then no data loss if
            retention has deleted a later piece of it.
    """

    topic: str
    partition: int
    start: int
    end: int
    start_is_earliest: bool = False
    end_is_latest: bool = False
    from_earliest: bool = False

    @property
    def topic_partition(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def size(self) -> int:
        """Upper bound of the number of records: compaction and control records leave gaps."""
        return self.end - self.start

    @property
    def fixed_end(self) -> int | None:
        """The end, None if it is late-bound."""
        return None if self.end_is_latest else self.end


def cut_range(whole: OffsetRange, cuts: Iterable[int]) -> list[OffsetRange]:
    """Return `whole` cut at these offsets, which ascend. Offsets outside of it cut nothing.

    There is at least one piece, and none is empty unless `whole` is. The first piece keeps a late-bound start, the last
    one a late-bound end.
    """
    pieces = []
    start = whole.start
    for cut in [*cuts, whole.end]:
        if start < cut <= whole.end:
            pieces.append(replace(whole, start=start, end=cut, start_is_earliest=False, end_is_latest=False))
            start = cut
    if not pieces:
        return [whole]
    pieces[0] = replace(pieces[0], start_is_earliest=whole.start_is_earliest)
    pieces[-1] = replace(pieces[-1], end_is_latest=whole.end_is_latest)
    return pieces
