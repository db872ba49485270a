"""Size of tasks in bytes. Planning cuts ranges into pieces of about this size, and packing fills tasks up to it."""

from __future__ import annotations

SMALL_SPLIT = 8 << 20
"""Bytes. A smaller split shares a task with adjacent splits, because starting a worker takes longer than reading this
many bytes (benchmark `many_partitions`)."""
TARGET_TASKS = 64
"""Approximate number of tasks for a read of many small splits: enough for the cores of most clusters."""


def pack_size(total: int, max_partition_bytes: int) -> int:
    """Return the bytes up to which a task is filled with small pieces, for pieces of `total` bytes together."""
    return min(max_partition_bytes, max(SMALL_SPLIT, total // TARGET_TASKS))
