"""The format `confluent-avro`: Avro with a schema's id before it, schemas from a registry, a file, or `_schemas`.

Each value is read with the schema that it names and one reader schema: option avroSchema, or the subject's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.options import OptionSpec, plain_text
from kafkalog_spark.typed.avro.options import READER_OPTIONS, meaning_of, reader_text
from kafkalog_spark.typed.avro.schema import AvroType, parse_schema
from kafkalog_spark.typed.avro.types import columns_of
from kafkalog_spark.typed.columns.buffer_pool import Values
from kafkalog_spark.typed.ddl import recursion_bounded
from kafkalog_spark.typed.decoder import Decoded, ResolvedFormat, SchemaSources, ValueDecoder, ValueEncoder
from kafkalog_spark.typed.registry.framing import NO_ID, header_name, unframed
from kafkalog_spark.typed.registry.options import (
    REGISTRY_OPTIONS,
    client_options,
    store_of,
    subject_schema,
    with_records,
)
from kafkalog_spark.typed.registry.schemas import AVRO, NamedSchemas, RegisteredSchema, SchemaStore, referenced

OPTIONS = (
    *READER_OPTIONS,
    *REGISTRY_OPTIONS,
    OptionSpec(
        "schema",
        plain_text,
        None,
        "Writes: the schema, JSON or a file of it. Needs the prefix `value.` or `key.`.",
        "format",
    ),
)


def resolve(format: ResolvedFormat, sources: SchemaSources) -> ResolvedFormat:
    """The format with its reader schema: the latest version is looked up once a load."""
    found = with_records(format, sources)
    reader = reader_text(found)
    if reader is not None:
        return replace(found, reader_text=reader)
    registered = subject_schema(found.options, store_of(found))
    if registered.kind != AVRO:
        raise OptionError(f"subject {registered.subject} has schemas of {registered.kind}, not of Avro")
    return replace(found, reader_text=registered.text, reader_id=registered.id)


def schema(format: ResolvedFormat) -> pa.Schema:
    """The columns of the reader schema."""
    return columns_of(_reader(format, store_of(format)), meaning_of(format.options))


def decoder(format: ResolvedFormat, projection: pa.Schema) -> ValueDecoder:
    """Raises OptionError, SchemaRegistryError."""
    return ConfluentAvroDecoder(format, projection)


def encoder(options: Mapping[str, str], given: pa.Schema) -> ValueEncoder:
    """Registers the schema that is given, or that Spark's to_avro makes of the columns. Raises OptionError, and
    SchemaRegistryError where the registry refuses it."""
    from kafkalog_spark.typed.avro.encoder import AvroEncoder
    from kafkalog_spark.typed.registry.client import RegistryClient

    if "schema.registry.url" not in options or "subject" not in options:
        raise OptionError("to write confluent-avro, options schema.registry.url and value.subject are needed")
    made = AvroEncoder(options.get("schema"), given)
    id_ = RegistryClient(client_options(options)).register(options["subject"], made.schema_json)
    return AvroEncoder(made.schema_json, given, prefix=b"\0" + id_.to_bytes(4, "big"))


def avro_type(registered: RegisteredSchema, store: SchemaStore) -> AvroType:
    """The type of a registered schema, with those that it refers to. Raises OptionError, SchemaRegistryError."""
    if registered.kind != AVRO:
        raise OptionError(f"schema {registered.id} is one of {registered.kind}, not of Avro")
    known: dict[str, AvroType] = {}
    with recursion_bounded("an Avro schema"):
        for text in dict.fromkeys(one.text for one in referenced(registered, store).values()):
            _collect(parse_schema(text, known), known)
    return parse_schema(registered.text, known)


def _collect(avro: AvroType, known: dict[str, AvroType]) -> None:
    if avro.name:
        if avro.name in known:
            return
        known[avro.name] = avro
    for below in (*avro.branches, *(one.type for one in avro.fields), *([avro.items] if avro.items else [])):
        _collect(below, known)


def _reader(format: ResolvedFormat, store: SchemaStore) -> AvroType:
    if format.reader_id is not None:
        registered = store.by_id(format.reader_id)
        if registered is not None:
            return avro_type(registered, store)
    text = reader_text(format)
    if text is not None:
        return parse_schema(text)
    return avro_type(subject_schema(format.options, store), store)


class ConfluentAvroDecoder:
    """Decodes values of the schemas that they name. `headers_too`: the id may be in a header, so `decode` takes
    those."""

    headers_too = True

    def __init__(self, format: ResolvedFormat, projection: pa.Schema) -> None:
        from kafkalog_spark.typed.avro.decoder import AvroReading

        self.schema = projection
        self._store = store_of(format)
        self._reading = AvroReading(_reader(format, self._store), projection, meaning_of(format.options))
        self._header = header_name(format.side)
        self._named = NamedSchemas[AvroType, None](
            self._store,
            self._reading,
            lambda found: avro_type(found, self._store),
            lambda found, _: self._reading.entry_of(found),
        )

    def decode(self, values: pa.BinaryArray | pa.LargeBinaryArray, headers: Any = None) -> Decoded:
        """As ValueDecoder.decode. headers: the records' own. Raises SchemaRegistryError where a registry cannot be
        asked: that says nothing of the value."""
        return self._named.decoded(self._decoded, values, headers)

    def _decoded(self, values: Any, headers: Any) -> Decoded:
        framed = unframed(Values.of(values), headers, self._header)
        found = [self._named.entry(id_, None) for id_ in framed.ids]
        entries = np.array([one if isinstance(one, int) else -1 for one in found] + [-1], np.int64)[framed.which]

        def unknown(i: int) -> str | None:
            if framed.values.ends[i] < 0 or entries[i] >= 0:
                return None
            one = found[framed.which[i]] if framed.which[i] >= 0 else None
            return one if isinstance(one, str) else NO_ID

        return self._reading.decode(framed.values, entries, unknown)
