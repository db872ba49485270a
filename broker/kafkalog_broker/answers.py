"""What the answers of many APIs have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.turn import Turn


async def per_partition(
    topics: Iterable[Any],
    of_partition: Callable[[Any, Any], Any],
    of_topic: Callable[[Any, tuple[Any, ...]], Any],
    turn: Turn,
) -> tuple[Any, ...]:
    """`of_topic(topic, answers)` for each topic of a request, with the answers `of_partition(topic, partition)` for
    each of its `partitions`, in the order of the request. Others have their turn in between."""
    return tuple(
        [
            of_topic(topic, tuple([of_partition(topic, one) async for one in turn.spread(topic.partitions)]))
            async for topic in turn.spread(topics)
        ]
    )


def fenced_before(first_version: int, version: int, code: ErrorCode) -> ErrorCode:
    """`code` as a client of `version` knows it: PRODUCER_FENCED came with `first_version` of an API (KIP-588), and was
    INVALID_PRODUCER_EPOCH before."""
    if code is ErrorCode.producer_fenced and version < first_version:
        return ErrorCode.invalid_producer_epoch
    return code
