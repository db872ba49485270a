"""Offset range of a partition, with late-bound sides."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kafkalog_spark.source.topic_partitions import TopicPartition


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets [start, end) of a partition.

    Attributes:
        start_is_earliest: True if the start is late-bound: `start` is the log start at planning, and a task looks it up
            again (`late_binding.rebind`).
        end_is_latest: True if the end is late-bound in the same way.
        from_earliest: True if this range, or the range from which it was cut, starts at earliest. If retention has
            deleted it, this is then no data loss.
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
        """The end; None if it is late-bound."""
        return None if self.end_is_latest else self.end


def cut_range(whole: OffsetRange, cuts: Iterable[int]) -> list[OffsetRange]:
    """Return the pieces of `whole`, cut at these ascending offsets. Offsets outside of the range are ignored.

    There is at least one piece, and no piece is empty unless `whole` is. The first piece keeps a late-bound start, the
    last piece a late-bound end.
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
