"""Limits of a stream's batch by offsets (Kafka source: `rateLimit`)."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalog_spark.source.topic_partitions import TopicPartition


def shares(limit: int, sizes: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Divide `limit` in proportion to the sizes. No share exceeds its size, and the share of a positive size is at
    least 1.

    The shares are computed with integers. In the connector's floating point, a limit that equals the total may leave a
    remainder of one offset.
    """
    total = sum(size for size in sizes.values() if size > 0)
    if total <= limit:
        return dict(sizes)
    return {tp: max(limit * size // total, 1) if size > 0 else 0 for tp, size in sizes.items()}


def limited_ends(
    limit: int, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return ends that are together about `limit` offsets behind `starts`.

    A partition whose end is not above its start keeps its end.
    """
    sizes = {tp: ends[tp] - starts[tp] for tp in ends if ends[tp] > starts[tp]}
    share = shares(limit, sizes)
    return {tp: starts[tp] + share[tp] if tp in share else end for tp, end in ends.items()}
