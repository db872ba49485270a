"""Decoders of values that begin with the ID of their schema."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed import formats
from kafkalog_spark.typed.columns.binary_values import Values
from kafkalog_spark.typed.decoder import Decoded
from kafkalog_spark.typed.json import format as json_format
from kafkalog_spark.typed.protobuf.message_indexes import message_at
from kafkalog_spark.typed.registry.framing import FIRST, NO_ID, Framed, take_indexes, unframed
from kafkalog_spark.typed.registry.schema_store import SchemaStore, lookup_subject, store_of
from kafkalog_spark.typed.registry.schemas import RegisteredSchema

MAX_SCHEMAS = 1000
"""Writer schemas that are compiled at the same time. A batch with more of them is decoded in parts."""
_MAX_CACHED = 10_000
"""Results of look-ups that are cached. Failed look-ups are cached, too, so that invented IDs cause one request each."""


class SchemaFormat(Protocol):
    """The part of confluent-avro and confluent-protobuf that the decoder uses. See `ConfluentFormat`."""

    inner: Any
    indexed: bool

    def reader(self, format: formats.ResolvedFormat, store: SchemaStore) -> Any: ...

    def parsed(self, registered: RegisteredSchema, store: SchemaStore) -> Any: ...


class ConfluentDecoder:
    """Decoder of Avro or Protobuf values with registered schemas.

    `headers_too` tells `decode_column` to pass the headers of records, which may contain the ID.
    """

    headers_too = True

    def __init__(self, inner: SchemaFormat, format: formats.ResolvedFormat, projection: pa.Schema) -> None:
        """Look up the reader schema.

        Args:
            inner: confluent-avro or confluent-protobuf.
            format: The resolved format.
            projection: Columns to decode.

        Raises:
            OptionError: If the reader schema is invalid or does not match the projection.
            SchemaRegistryError: If the reader schema cannot be looked up.
        """
        self.schema = projection
        self._inner, self._store, self._side = inner, store_of(format), format.side
        self._subject = lookup_subject(format)
        reader = inner.reader(format, self._store)
        self._decoder = inner.inner.resolving_decoder(reader, projection, format.options)
        self._schemas = 0
        self._parsed = lru_cache(MAX_SCHEMAS)(self._look_up)
        self._entry = lru_cache(_MAX_CACHED)(self._add_entry)

    def decode(self, values: pa.BinaryArray | pa.LargeBinaryArray, headers: Any = None) -> Decoded:
        """Decode a batch, as a whole or in halves if it has more schemas than MAX_SCHEMAS.

        Args:
            values: The values.
            headers: Headers of each record, list<struct<key, value>>, or None.

        Raises:
            SchemaRegistryError: If a registry cannot be reached. Then it is unknown whether a value is malformed.
        """
        had_schemas = self._schemas
        try:
            return self._decode(values, headers)
        except _Full:
            self._decoder.reset()
            self._entry.cache_clear()
            self._schemas = 0
        if had_schemas:  # try again without the schemas of earlier batches
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

        decoded: Decoded = self._decoder.decode(framed.values, entries, unknown)
        return decoded

    def _add_entry(self, id_: int | str, indexes: tuple[int, ...]) -> int | str:
        """Return the entry of a schema's program, or why there is none. Raises SchemaRegistryError."""
        schema = self._parsed(id_)
        if isinstance(schema, OptionError):
            return str(schema)
        if self._schemas == MAX_SCHEMAS or (self._schemas and self._decoder.is_full):
            raise _Full
        try:
            entry: int = self._decoder.add_schema(message_at(schema, indexes) if self._inner.indexed else schema)
        except OptionError as error:
            return f"it names schema {id_}, which cannot be read: {error}"
        self._schemas += 1
        return entry

    def _look_up(self, id_: int | str) -> Any:
        """Return a schema in the form of the inner format, or an OptionError that says why its values are malformed."""
        store = self._store
        registered = store.by_id(id_, self._subject) if isinstance(id_, int) else store.by_guid(id_)
        if registered is None:
            return OptionError(f"it names schema {id_}, which {self._store.described} does not have")
        try:
            return self._inner.parsed(registered, self._store)
        except OptionError as error:
            return OptionError(f"it names schema {id_}, which cannot be read: {error}")


class _Full(Exception):
    """There is no room for the program of another schema."""


class ConfluentJsonDecoder:
    """Decoder of JSON values after a prefix. A value without a prefix is malformed.

    `headers_too` tells `decode_column` to pass the headers of records, which may contain the ID.
    """

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
    """Return the values without prefixes. A value that names no schema becomes empty."""
    data, starts, ends = framed.values
    sizes = np.where((ends >= 0) & (framed.which >= 0), ends - starts, 0)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    positions = np.repeat(starts - offsets[:-1], sizes) + np.arange(offsets[-1])
    bits = pa.py_buffer(np.packbits(ends >= 0, bitorder="little"))
    buffers = [bits, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data[positions])]
    return pa.Array.from_buffers(pa.binary(), len(starts), buffers)
