"""Partitions of a request that may name them more than once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any


def distinct_partitions(topics: Iterable[Any]) -> Mapping[str, Collection[int]]:
    """Return the partitions of topic structs by topic name, each once, in the order of their first occurrence."""
    partitions: dict[str, dict[int, None]] = {}
    for topic in topics:
        partitions.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return partitions
