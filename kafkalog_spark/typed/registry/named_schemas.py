"""The schemas that values name, each looked up and made ready once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from kafkalog_spark.typed.registry.schemas import RegisteredSchema, SchemaStore

K = TypeVar("K", bound=Hashable)

MOST_SCHEMAS = 1000
"""Writer schemas that one task reads with; values of further ones are bad."""


class NamedSchemas(Generic[K]):
    """`ready(id, schema, part)`: where the program for it begins, or why there is none; of its exceptions, `failures`
    are such a reason. `part`: what a value names of its schema, the indexes of a message for example."""

    def __init__(
        self,
        store: SchemaStore,
        ready: Callable[[int | str, RegisteredSchema, K], int | str],
        failures: tuple[type[Exception], ...],
    ) -> None:
        self._store = store
        self._ready = ready
        self._failures = failures
        self._entries: dict[tuple[int | str, K], int | str] = {}

    def entry(self, id_: int | str, part: K) -> int | str:
        """Where the program for a schema, by its id or GUID, begins, or why there is none. Raises SchemaRegistryError
        where a registry cannot be asked."""
        if (id_, part) not in self._entries:
            if len(self._entries) >= MOST_SCHEMAS:
                return f"it names schema {id_}, and this task has read values of {MOST_SCHEMAS:,} schemas already"
            self._entries[id_, part] = self._looked_up(id_, part)
        return self._entries[id_, part]

    def _looked_up(self, id_: int | str, part: K) -> int | str:
        found = self._store.by_id(id_) if isinstance(id_, int) else self._store.by_guid(id_)
        if found is None:
            return f"it names schema {id_}, which {self._store.described} does not have"
        try:
            return self._ready(id_, found, part)
        except self._failures as error:
            return f"it names schema {id_}, which cannot be read: {error}"
