"""Packing of splits into Spark tasks that are large enough to be worth their start-up cost."""

from __future__ import annotations

import os
from collections.abc import Sequence

from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.split import Split
from kafkalog_spark.source.task_size import pack_size

OPEN_COST = 16 << 10
"""Bytes that take about as long to read as a partition's log takes to open (benchmark `many_partitions`)."""


def group_splits(
    sizes: Sequence[int],
    offsets: Sequence[int],
    *,
    cores: int,
    max_partition_bytes: int,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
) -> list[slice]:
    """Group pieces into tasks without changing their order, as Spark does with files.

    Spark: `FilePartition.getFilePartitions`. If there are enough pieces, there are at least `min_partitions` tasks, and
    at least one for each core. The number of tasks is a multiple of `cores` if the pieces are small enough, so that no
    core is idle at the end.

    Args:
        sizes: Bytes of each piece.
        offsets: Number of offsets of each piece.
        cores: Cores of the driver's machine, because the planning process does not see spark.default.parallelism.
        max_partition_bytes: Maximum size of a task with several pieces.
        min_partitions: Minimum number of tasks.
        max_records_per_partition: Maximum number of offsets of a task with several pieces.

    Returns:
        The pieces of each task.
    """
    min_tasks = max(cores, min_partitions or 0)
    costs = [size + OPEN_COST for size in sizes]
    total = sum(costs)
    max_cost = pack_size(total, max_partition_bytes)
    share = total / max(min_tasks, round(total / max_cost / cores) * cores)
    # Rounding the number of tasks to a multiple of `cores` may make them larger by half.
    max_cost = min(max_partition_bytes, max_cost + max_cost // 2)
    tasks: list[slice] = []
    first = filled = offset_count = 0
    target = share
    for i, cost in enumerate(costs):
        # If the target is inside this piece, the task ends before or behind the piece, whichever is nearer.
        too_large = filled + cost > max_cost or filled + cost / 2 > target
        too_many = max_records_per_partition is not None and offset_count + offsets[i] > max_records_per_partition
        too_few = len(tasks) + 1 + len(costs) - i <= min_tasks  # every further piece must begin a task
        if i > first and (too_large or too_many or too_few):
            tasks.append(slice(first, i))
            # The next task compensates a difference of less than a piece, so that the number of tasks is right.
            difference = target - filled
            target = share + (difference if abs(difference) <= cost else 0)
            first, filled, offset_count = i, 0, 0
        filled += cost
        offset_count += offsets[i]
    if costs:
        tasks.append(slice(first, len(costs)))
    return tasks


def tasks_of(splits: Sequence[Split], options: ReadOptions) -> list[tuple[Split, ...]]:
    """Return the splits of each task. The splits of a partition stay in their order."""
    groups = group_splits(
        [split.size for split in splits],
        [split.range.size for split in splits],
        cores=cores(),
        max_partition_bytes=options.max_partition_bytes,
        min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition,
    )
    return [tuple(splits[group]) for group in groups]


def cores() -> int:
    """Return the number of cores that this process may use. With a local master, the tasks use the same cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
