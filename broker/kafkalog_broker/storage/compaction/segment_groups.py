"""Grouping of segments that are cleaned into one (Kafka: `Cleaner.groupSegmentsBySize`)."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from kafkalog_spark.format.index_file import MAX_RELATIVE_OFFSET


class SourceSize(NamedTuple):
    """Sizes of a segment's files in bytes."""

    base_offset: int
    log: int
    offset_index: int
    time_index: int


class SegmentGroup(NamedTuple):
    """Range of adjacent segments: index of the first one, and index after the last one."""

    first: int
    end: int


def group_segments(
    sizes: Sequence[SourceSize], max_size: int, max_index_size: int, end_offset: int
) -> list[SegmentGroup]:
    """Group adjacent segments that become one segment.

    A group is at most as large as segment.bytes, its indexes have room for the present entries, and its offsets fit
    into one index. An empty segment always joins the group before it.

    Args:
        end_offset: Offset after the last segment.
    """
    firsts: list[int] = []
    total = SourceSize(0, 0, 0, 0)
    for slot, size in enumerate(sizes):
        after = sizes[slot + 1].base_offset if slot + 1 < len(sizes) else end_offset
        if (
            firsts
            and total.log + size.log <= max_size
            and total.offset_index + size.offset_index <= max_index_size
            and total.time_index + size.time_index <= max_index_size
            and (size.log == 0 or after - 1 - total.base_offset <= MAX_RELATIVE_OFFSET)
        ):
            total = SourceSize(total.base_offset, *map(operator.add, total[1:], size[1:]))
        else:
            firsts.append(slot)
            total = size
    return [SegmentGroup(first, end) for first, end in pairwise((*firsts, len(sizes)))]
