"""Requests to stores in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_REQUESTS = 16
"""Most requests at once. Stores answer thousands a second, each after 20 to 100 ms."""

T = TypeVar("T")
R = TypeVar("R")


def in_parallel(function: Callable[[T], R], items: Iterable[T], remote: Callable[[T], bool]) -> list[R]:
    """Return the results of `function` in order, computed in threads if several items are `remote`.

    Raises the error of the first item that failed.
    """
    items = list(items)
    requests = sum(map(remote, items))
    if requests < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(_REQUESTS, requests), thread_name_prefix="kafkalog-store") as threads:
        return list(threads.map(function, items))
