"""Decoder of Avro or Protobuf values that begin with the ID of their schema."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed import formats
from kafkalog_spark.typed.columns.binary_values import Values
from kafkalog_spark.typed.columns.resolving_decoder import NO_ENTRY
from kafkalog_spark.typed.decoder import Decoded
from kafkalog_spark.typed.protobuf.message_indexes import message_at
from kafkalog_spark.typed.registry.framing import (
    FIRST_MESSAGE,
    NO_SCHEMA_ID,
    UnframedValues,
    read_message_indexes,
    remove_prefixes,
)
from kafkalog_spark.typed.registry.schema_store import SchemaStore, lookup_subject, store_of
from kafkalog_spark.typed.registry.schemas import RegisteredSchema

MAX_SCHEMAS = 1000
"""Writer schemas that are compiled at the same time. A batch with more of them is decoded in parts."""
_MAX_CACHED = 10_000
"""Results of look-ups that are cached. Failed look-ups are cached, too, so that invented IDs cause one request each."""


class SchemaFormat(Protocol):
    """The part of confluent-avro and confluent-protobuf that the decoder uses. See `ConfluentFormat`."""

    payload_module: Any
    has_message_indexes: bool

    def reader_schema(self, format: formats.ResolvedFormat, store: SchemaStore) -> Any: ...

    def parse_registered(self, registered: RegisteredSchema, store: SchemaStore) -> Any: ...


class ConfluentDecoder:
    """Decoder of Avro or Protobuf values with registered schemas.

    `needs_headers` tells `decode_column` to pass the headers of records, which may contain the ID.
    """

    needs_headers = True

    def __init__(self, schema_format: SchemaFormat, format: formats.ResolvedFormat, projection: pa.Schema) -> None:
        """Look up the reader schema.

        Args:
            schema_format: confluent-avro or confluent-protobuf.
            format: The resolved format.
            projection: Columns to decode.

        Raises:
            OptionError: If the reader schema is invalid or does not match the projection.
            SchemaRegistryError: If the reader schema cannot be looked up.
        """
        self.schema = projection
        self._format, self._store, self._side = schema_format, store_of(format), format.side
        self._subject = lookup_subject(format)
        reader = schema_format.reader_schema(format, self._store)
        self._decoder = schema_format.payload_module.resolving_decoder(reader, projection, format.options)
        self._schema_count = 0
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
        had_schemas = self._schema_count > 0
        try:
            return self._decode(values, headers)
        except _Full:
            self._decoder.reset()
            self._entry.cache_clear()
            self._schema_count = 0
        if had_schemas:  # try again without the schemas of earlier batches
            return self.decode(values, headers)
        half = len(values) // 2
        first, second = (
            self.decode(values[part], None if headers is None else headers[part])
            for part in (slice(half), slice(half, None))
        )
        bad = [[False] * len(part.columns) if part.bad is None else part.bad for part in (first, second)]
        return Decoded(
            pa.concat_arrays([first.columns, second.columns]),
            np.concatenate(bad),
            lambda i: first.why(i) if i < half else second.why(i - half),
        )

    def _decode(self, values: Any, headers: Any) -> Decoded:
        unframed = remove_prefixes(Values.of(values), headers, self._side)
        keys, key_numbers = self._schema_keys(unframed)
        # The entry of each schema, or why it has none.
        results = [indexes if isinstance(indexes, str) else self._entry(id_, indexes) for id_, indexes in keys]
        entries_of_keys = [NO_ENTRY if isinstance(result, str) else result for result in results]
        entries = np.array([*entries_of_keys, NO_ENTRY], np.int64)[key_numbers]  # the last one is for number -1

        def why_no_entry(i: int) -> str | None:
            if unframed.values.ends[i] < 0 or entries[i] != NO_ENTRY:
                return None
            return str(results[key_numbers[i]]) if key_numbers[i] >= 0 else NO_SCHEMA_ID

        decoded: Decoded = self._decoder.decode(unframed.values, entries, why_no_entry)
        return decoded

    def _schema_keys(self, unframed: UnframedValues) -> tuple[list[_SchemaKey], np.ndarray]:
        """Return the schemas of a batch.

        Returns:
            (distinct keys; int64[n], the index of each value's key, or -1 for a value that names no schema).
        """
        ids, id_numbers = unframed.ids, unframed.id_numbers
        indexes: list[Any] = [FIRST_MESSAGE]
        if self._format.has_message_indexes:
            index_numbers, indexes = read_message_indexes(unframed)
        if indexes == [FIRST_MESSAGE]:
            return [_SchemaKey(id_, FIRST_MESSAGE) for id_ in ids], id_numbers
        pairs = np.where(id_numbers >= 0, id_numbers * len(indexes) + index_numbers, -1)
        distinct = np.unique(pairs[pairs >= 0])
        keys = [_SchemaKey(ids[pair // len(indexes)], indexes[pair % len(indexes)]) for pair in distinct.tolist()]
        return keys, np.where(pairs >= 0, np.searchsorted(distinct, pairs), -1)

    def _add_entry(self, id_: int | str, indexes: tuple[int, ...]) -> int | str:
        """Compile a schema and return its entry, or why it cannot be read. Raises SchemaRegistryError."""
        schema = self._parsed(id_)
        if isinstance(schema, OptionError):
            return str(schema)
        if self._schema_count == MAX_SCHEMAS or (self._schema_count and self._decoder.is_full):
            raise _Full
        try:
            writer = message_at(schema, indexes) if self._format.has_message_indexes else schema
            entry: int = self._decoder.add_schema(writer)
        except OptionError as error:
            return f"it names schema {id_}, which cannot be read: {error}"
        self._schema_count += 1
        return entry

    def _look_up(self, id_: int | str) -> Any:
        """Return a schema, parsed for the payload format, or an OptionError that says why its values are malformed."""
        store = self._store
        registered = store.by_id(id_, self._subject) if isinstance(id_, int) else store.by_guid(id_)
        if registered is None:
            return OptionError(f"it names schema {id_}, which {self._store.described} does not have")
        try:
            return self._format.parse_registered(registered, self._store)
        except OptionError as error:
            return OptionError(f"it names schema {id_}, which cannot be read: {error}")


class _SchemaKey(NamedTuple):
    """The schema that a value names."""

    id: int | str  # schema ID, or GUID as text
    indexes: tuple[int, ...] | str  # message indexes, or why they are malformed


class _Full(Exception):
    """The program has no room for another schema."""
