"""Decoders."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed import formats
from kafkalog_spark.typed.columns.binary_values import Values
from kafkalog_spark.typed.decoder import Decoded
from kafkalog_spark.typed.json import format as json_format
from kafkalog_spark.typed.protobuf.proto_file import message_at
from kafkalog_spark.typed.registry.framing import FIRST, NO_ID, Framed, take_indexes, unframed
from kafkalog_spark.typed.registry.schema_store import (
    _subject_of_ids,
    store_of,
)

if TYPE_CHECKING:
    from kafkalog_spark.typed.registry.confluent import ConfluentFormat

MOST_SCHEMAS = 1000
"""Writer schemas that are ready at once. Those of a batch that names more are made ready again and again."""
_REMEMBERED = 10_000
"""Schemas that cannot be had, among others: each is asked for once, unless there are more of them."""


class ConfluentDecoder:
    """Decodes values of the schemas that they name; `headers_too`: an id may be in a header, given to `decode`."""

    headers_too = True

    def __init__(self, inner: ConfluentFormat, format: formats.ResolvedFormat, projection: pa.Schema) -> None:
        self.schema = projection
        self._inner, self._store, self._side = inner, store_of(format), format.side
        self._subject = _subject_of_ids(format)
        reader = inner.reader(format, self._store)
        self._reading = inner.inner.reading(reader, projection, format.options)
        self._ready = 0
        self._parsed = lru_cache(MOST_SCHEMAS)(self._look_up)
        self._entry = lru_cache(_REMEMBERED)(self._add_entry)

    def decode(self, values: pa.BinaryArray | pa.LargeBinaryArray, headers: Any = None) -> Decoded:
        """As ValueDecoder.decode, at once, or in halves where there are more schemas than room. headers: the records'
        own. Raises SchemaRegistryError where a registry cannot be asked: that says nothing of the value."""
        of_other_batches = self._ready
        try:
            return self._decode(values, headers)
        except _Full:
            self._reading.reset()
            self._entry.cache_clear()
            self._ready = 0
        if of_other_batches:  # perhaps there is room without those
            return self.decode(values, headers)
        half = len(values) // 2
        first, second = (
            self.decode(values[part], None if headers is None else headers[part])
            for part in (slice(half), slice(half, None))
        )
        bad = [[False] * len(each.columns) if each.bad is None else each.bad for each in (first, second)]
        return Decoded(
            pa.concat_arrays([first.columns, second.columns]),
            np.concatenate(bad),
            lambda i: first.why(i) if i < half else second.why(i - half),
        )

    def _decode(self, values: Any, headers: Any) -> Decoded:
        framed = unframed(Values.of(values), headers, self._side)
        names: list[tuple[int | str, tuple[int, ...] | str]] = [(id_, FIRST) for id_ in framed.ids]
        which, ends = framed.which, framed.values.ends
        if self._inner.indexed:
            index_of, indexes = take_indexes(framed)
            if indexes != [FIRST]:
                pairs = np.where(which >= 0, which * len(indexes) + index_of, -1)
                distinct = np.unique(pairs[pairs >= 0])
                which = np.where(pairs >= 0, np.searchsorted(distinct, pairs), -1)
                names = [(framed.ids[pair // len(indexes)], indexes[pair % len(indexes)]) for pair in distinct.tolist()]
        results = [index if isinstance(index, str) else self._entry(id_, index) for id_, index in names]
        entries = np.array([-1 if isinstance(result, str) else result for result in results] + [-1], np.int64)[which]

        def unknown(i: int) -> str | None:
            if ends[i] < 0 or entries[i] >= 0:
                return None
            return str(results[which[i]]) if which[i] >= 0 else NO_ID

        decoded: Decoded = self._reading.decode(framed.values, entries, unknown)
        return decoded

    def _add_entry(self, id_: int | str, indexes: tuple[int, ...]) -> int | str:
        """Where the program for a schema begins, or why there is none. Raises SchemaRegistryError."""
        schema = self._parsed(id_)
        if isinstance(schema, OptionError):
            return str(schema)
        if self._ready == MOST_SCHEMAS or (self._ready and self._reading.is_full):
            raise _Full
        try:
            entry: int = self._reading.entry_of(message_at(schema, indexes) if self._inner.indexed else schema)
        except OptionError as error:
            return f"it names schema {id_}, which cannot be read: {error}"
        self._ready += 1
        return entry

    def _look_up(self, id_: int | str) -> Any:
        """A schema as the format has it, or the OptionError that says why its values are bad."""
        store = self._store
        registered = store.by_id(id_, self._subject) if isinstance(id_, int) else store.by_guid(id_)
        if registered is None:
            return OptionError(f"it names schema {id_}, which {self._store.described} does not have")
        try:
            return self._inner.parsed(registered, self._store)
        except OptionError as error:
            return OptionError(f"it names schema {id_}, which cannot be read: {error}")


class _Full(Exception):
    """There is no room for the schema of a value."""


class ConfluentJsonDecoder:
    """Decodes what follows the prefix. A value without one is bad. `headers_too`: the id may be in a header."""

    headers_too = True

    def __init__(self, format: formats.ResolvedFormat, projection: pa.Schema) -> None:
        self.schema, self._side = projection, format.side
        self._inner = json_format.decoder(format, projection)

    def decode(self, values: pa.BinaryArray | pa.LargeBinaryArray, headers: Any = None) -> Decoded:
        framed = unframed(Values.of(values), headers, self._side)
        unnamed = (framed.which < 0) & (framed.values.ends >= 0)
        decoded = self._inner.decode(_as_array(framed))
        if not unnamed.any():
            return decoded
        bad = unnamed if decoded.bad is None else decoded.bad | unnamed
        return Decoded(decoded.columns, bad, lambda i: NO_ID if unnamed[i] else decoded.why(i))


def _as_array(framed: Framed) -> pa.Array:
    """The values without prefixes, as one array; one that names no schema is empty, which is bad in JSON too."""
    data, starts, ends = framed.values
    sizes = np.where((ends >= 0) & (framed.which >= 0), ends - starts, 0)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    places = np.repeat(starts - offsets[:-1], sizes) + np.arange(offsets[-1])
    bits = pa.py_buffer(np.packbits(ends >= 0, bitorder="little"))
    buffers = [bits, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data[places])]
    return pa.Array.from_buffers(pa.binary(), len(starts), buffers)
