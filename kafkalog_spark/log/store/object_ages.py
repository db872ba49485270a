"""Listings with times, for whoever removes what is old. The clock is the store's: ages are differences of its times."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from kafkalog_spark.log.store.object_store import PAGE, ObjectStore
from kafkalog_spark.log.store.urls import place_of


class AgedObject(NamedTuple):
    """An object below a directory. name: its path from the directory on. modified_s: seconds since 1970."""

    name: str
    size: int
    modified_s: float


def objects_below(
    store: ObjectStore, directory: str, enough: Callable[[AgedObject], bool] = lambda _: False
) -> list[AgedObject]:
    """All objects below a directory, at all levels, in the order of their names, up to the first that is `enough`; none
    where there is no such directory. One request for 1,000. Raises OSError."""
    prefix = f"{place_of(directory).key}/".lstrip("/")
    client = store.client
    found: list[AgedObject] = client.ask(directory, partial(_walk, prefix=prefix, enough=enough), in_parts=True, list=1)
    client.tally.add(list=max(-(-len(found) // PAGE) - 1, 0))
    return found


def _walk(library: Any, *, prefix: str, enough: Callable[[AgedObject], bool]) -> list[AgedObject]:
    found: list[AgedObject] = []
    for page in library.list(prefix, chunk_size=PAGE):
        for one in page:
            name = one["path"].removeprefix(prefix)
            aged = AgedObject(name, one["size"], one["last_modified"].timestamp())
            if enough(aged):
                return found
            found.append(aged)
    return found


def modified(store: ObjectStore, path: str) -> float:
    """When the object was written, seconds since 1970. One HEAD. Raises FileNotFoundError, OSError."""
    key = place_of(path).key
    found = store.client.ask(path, lambda library: library.head(key), head=1)
    return float(found["last_modified"].timestamp())
