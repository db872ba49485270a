"""The same done for many partitions: in turn where files are near, in threads where each call is a request."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from kafkalog_spark.log.read.partition_place import PartitionPlace
from kafkalog_spark.store.interface import Store, in_parallel

T = TypeVar("T")


def for_each_place(function: Callable[[PartitionPlace], T], places: Iterable[PartitionPlace]) -> list[T]:
    """What `function` returns for each place, in their order. Raises what it raised first, by that order."""
    return in_parallel(function, places, lambda place: any(store.remote for store in place.stores))


# What a plan, a trigger or a task cost in requests to object stores, in one line of the log.

_log = logging.getLogger(__name__)


@contextmanager
def requests_logged(what: str, stores: Iterable[Store]) -> Iterator[None]:
    """Log, at level INFO, the requests and bytes of this process while it lasts; nothing where all stores are near."""
    if not any(store.remote for store in stores):
        yield
        return
    from kafkalog_spark.store.object_client import all_counts  # the client of object stores only where one is read

    before = all_counts()
    try:
        yield
    finally:
        _log.info("%s: %s", what, all_counts() - before)
