"""The schemas that values name, each looked up and made ready once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.decoder import Decoded
from kafkalog_spark.typed.registry.schemas import RegisteredSchema, SchemaStore

S = TypeVar("S")
P = TypeVar("P", bound=Hashable)

MOST_SCHEMAS = 1000
"""Writer schemas that are ready at once. Those of a batch that names more are made ready again and again."""
_REMEMBERED = 10_000
"""Schemas that cannot be had, among others: each is asked for once, unless there are more of them."""


class Reading(Protocol):
    """What reads with the schemas."""

    @property
    def is_full(self) -> bool:
        """Whether it has no room for another schema."""
        ...

    def forget(self) -> None:
        """Begin without a schema."""
        ...


class NamedSchemas(Generic[S, P]):
    """made: a schema as it is kept. entry_of: where the program for a part of it begins; a part is what a value names
    of its schema, the indexes of a message for example. Both raise OptionError where its values are bad."""

    def __init__(
        self,
        store: SchemaStore,
        reading: Reading,
        made: Callable[[RegisteredSchema], S],
        entry_of: Callable[[S, P], int],
    ) -> None:
        self._store, self._reading = store, reading
        self._made, self._entry_of = made, entry_of
        self._ready = 0
        self._schema = lru_cache(MOST_SCHEMAS)(self._looked_up)
        self.entry = lru_cache(_REMEMBERED)(self._entry)

    def decoded(self, decode: Callable[[Any, Any], Decoded], values: Any, headers: Any) -> Decoded:
        """What `decode` makes of values and their headers, which asks for an `entry`: of all at once, or in parts,
        where they name more schemas than there is room for."""
        others = self._ready
        try:
            return decode(values, headers)
        except _Full:
            self._reading.forget()
            self.entry.cache_clear()
            self._ready = 0
        if others:  # perhaps there is room without those of other batches
            return self.decoded(decode, values, headers)
        half = len(values) // 2
        first, second = (
            self.decoded(decode, values[part], None if headers is None else headers[part])
            for part in (slice(half), slice(half, None))
        )
        bad = [[False] * len(one.columns) if one.bad is None else one.bad for one in (first, second)]
        return Decoded(
            pa.concat_arrays([first.columns, second.columns]),
            np.concatenate(bad),
            lambda i: first.why(i) if i < half else second.why(i - half),
        )

    def _entry(self, id_: int | str, part: P) -> int | str:
        """Where the program for a schema, by its id or GUID, begins, or why there is none. Raises SchemaRegistryError
        where a registry cannot be asked."""
        found = self._schema(id_)
        if isinstance(found, OptionError):
            return str(found)
        if self._ready == MOST_SCHEMAS or (self._ready and self._reading.is_full):
            raise _Full
        try:
            entry = self._entry_of(found, part)
        except OptionError as error:
            return f"it names schema {id_}, which cannot be read: {error}"
        self._ready += 1
        return entry

    def _looked_up(self, id_: int | str) -> S | OptionError:
        found = self._store.by_id(id_) if isinstance(id_, int) else self._store.by_guid(id_)
        if found is None:
            return OptionError(f"it names schema {id_}, which {self._store.described} does not have")
        try:
            return self._made(found)
        except OptionError as error:
            return OptionError(f"it names schema {id_}, which cannot be read: {error}")


class _Full(Exception):
    """There is no room for the schema of a value."""
