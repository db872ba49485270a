"""Division of many items into parts, so that one step handles one part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def in_parts(items: Iterable[T], count: int) -> Iterator[list[T]]:
    """Divide the items into lists of `count`; the last one may be shorter."""
    iterator = iter(items)
    while part := list(islice(iterator, count)):
        yield part
