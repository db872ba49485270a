"""How splits share tasks. Decisions on sizes alone: neighbours are put together until a task is worth its start.

Spark does the same for files (FilePartition.getFilePartitions): each has its bytes and what opening it costs, and a
task is filled up to a size that leaves every core its share.
"""

from __future__ import annotations

from collections.abc import Sequence

SMALL_SPLIT = 8 << 20
"""Bytes. What is smaller shares a task with its neighbours. A task whose worker has to be started costs about 1 s, and
reading this much 30 ms in large record batches, 0.5 s as 500 partitions (OPEN_COST)."""
TASKS_WISHED = 64
"""A read of many small pieces is packed into about so many tasks: enough for the cores of most clusters."""
TASKS_A_CORE = 1
"""No read is packed into fewer tasks than this for each core of the driver's machine, which is all that planning can
see of spark.default.parallelism. Two rounds of small tasks are slower than one: where Spark ends each worker
(`limit`, then `count`) the second one is another second."""
OPEN_COST = 16 << 10
"""Bytes that opening a partition's log counts for: it takes about 1 ms, a Python task without rows 50 to 100 ms."""


_MORE_FOR_WHOLE_ROUNDS = 2
"""A task may be filled up to half more than that, so that the number of tasks is a multiple of the cores: with one
round, that is as far as the nearest multiple can be away. A third task on two cores makes a second round, in which a
core has nothing to do."""


def pack_size(total: int, max_partition_bytes: int) -> int:
    """Bytes that a task of small pieces is filled up to, when all pieces together have `total`."""
    return min(max_partition_bytes, max(SMALL_SPLIT, total // TASKS_WISHED))


def packed(
    sizes: Sequence[int],
    offsets: Sequence[int],
    *,
    cores: int,
    max_partition_bytes: int,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
) -> list[slice]:
    """Which pieces, in their order, go into one task each. `sizes`: bytes of each piece; `offsets`: how many it has.

    At least `min_partitions` tasks, if there are as many pieces, and TASKS_A_CORE for each of `cores`; a multiple of
    `cores` where pieces are small enough for that; no task that holds several pieces has more than
    `max_records_per_partition` offsets.
    """
    least = max(TASKS_A_CORE * cores, min_partitions or 0)
    costs = [size + OPEN_COST for size in sizes]
    total = sum(costs)
    most = pack_size(total, max_partition_bytes)
    share = total / max(least, round(total / most / cores) * cores)
    most = min(max_partition_bytes, most + most // _MORE_FOR_WHOLE_ROUNDS)
    tasks: list[slice] = []
    first = filled = held = 0
    wished = share
    for i, cost in enumerate(costs):
        too_large = filled + cost > most or filled + cost / 2 > wished  # whichever side is nearer
        too_many = max_records_per_partition is not None and held + offsets[i] > max_records_per_partition
        too_few = len(tasks) + 1 + len(costs) - i <= least  # every piece from here on has to begin a task
        if i > first and (too_large or too_many or too_few):
            tasks.append(slice(first, i))
            left = (
                wished - filled
            )  # less than a piece: the next task makes up for it, so that there are as many as wished
            wished = share + (left if abs(left) <= cost else 0)
            first, filled, held = i, 0, 0
        filled += cost
        held += offsets[i]
    if costs:
        tasks.append(slice(first, len(costs)))
    return tasks
