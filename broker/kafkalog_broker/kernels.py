"""Numba kernels of the broker, for `python -m kafkalog_spark.warm` (an entry point of the group kafkalog.kernels)."""

from __future__ import annotations


def warm() -> None:
    """Load all kernels, and compile those that are not in the cache."""
    from kafkalog_broker.storage.append import message_set_kernel  # noqa: F401
    from kafkalog_broker.storage.append.kernel_loading import load_kernel
    from kafkalog_broker.storage.compaction import cleaner_kernel, offset_map_kernel  # noqa: F401

    load_kernel()
