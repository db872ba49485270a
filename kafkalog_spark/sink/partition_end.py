"""Append position of a partition, from the end of its log and its leader epochs."""

from __future__ import annotations

from dataclasses import dataclass

from kafkalog_spark.format.checkpoint import EpochEntry

_FIRST_EPOCH = 0  # leader epoch of a log that has none yet


@dataclass(frozen=True, slots=True)
class PartitionEnd:
    """Append position of a partition.

    Attributes:
        next_offset: The log end offset.
        leader_epoch, epochs, replaces_empty: These fields of the first segment to append; see PlannedSegment.
    """

    next_offset: int
    leader_epoch: int
    epochs: tuple[EpochEntry, ...] | None
    replaces_empty: bool = False


EMPTY_END = PartitionEnd(0, _FIRST_EPOCH, (EpochEntry(_FIRST_EPOCH, 0),))
"""Append position of a partition that does not exist yet."""


def partition_end(next_offset: int, epochs: list[EpochEntry], *, replaces_empty: bool = False) -> PartitionEnd:
    """Return the append position of a log that ends at `next_offset` and has these leader epochs.

    New batches get the latest epoch. If the records of that epoch were truncated, its entry is beyond `next_offset` and
    moves there.
    """
    epoch = epochs[-1].epoch if epochs else _FIRST_EPOCH
    kept = [entry for entry in epochs if entry.start_offset <= next_offset]
    if kept and kept[-1].epoch == epoch:
        return PartitionEnd(next_offset, epoch, None, replaces_empty)
    before_end = [entry for entry in kept if entry.start_offset < next_offset]
    return PartitionEnd(next_offset, epoch, (*before_end, EpochEntry(epoch, next_offset)), replaces_empty)
