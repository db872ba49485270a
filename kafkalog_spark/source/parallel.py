"""The same done for many partitions: in turn where files are near, in threads where each call is a request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from kafkalog_spark.log.read.partition_place import PartitionPlace

_REQUESTS = 16
"""At once. Stores answer thousands a second for each prefix; planning waits for them, 20 to 100 ms each."""

T = TypeVar("T")


def for_each_place(function: Callable[[PartitionPlace], T], places: Iterable[PartitionPlace]) -> list[T]:
    """What `function` returns for each place, in their order. Raises what it raised first, by that order."""
    places = list(places)
    remote = sum(any(store.remote for store in place.stores) for place in places)
    if remote < 2:
        return [function(place) for place in places]
    with ThreadPoolExecutor(min(_REQUESTS, remote), thread_name_prefix="kafkalog-plan") as threads:
        return list(threads.map(function, places))
