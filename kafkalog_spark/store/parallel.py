"""Requests to stores in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_REQUESTS = 16
"""Maximum number of simultaneous requests: a request waits for the network most of the time."""

T = TypeVar("T")
R = TypeVar("R")


def in_parallel(function: Callable[[T], R], items: Iterable[T], remote: Callable[[T], bool]) -> list[R]:
    """Return the results of `function` for the items, in order. Raises the error of the first item that failed.

    Args:
        function: Called for each item; in threads if at least two items are remote.
        items: The items.
        remote: Returns True for an item that requires a request over a network.
    """
    items = list(items)
    requests = sum(map(remote, items))
    if requests < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(_REQUESTS, requests), thread_name_prefix="kafkalog-store") as threads:
        return list(threads.map(function, items))
