"""The format `confluent-protobuf`: Protobuf with a schema's id and the indexes of the message before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import OptionError, SchemaRegistryError
from kafkalog_spark.options import OptionSpec, plain_text
from kafkalog_spark.typed.columns.buffer_pool import Values
from kafkalog_spark.typed.decoder import Decoded, ResolvedFormat, SchemaSources, ValueDecoder, ValueEncoder
from kafkalog_spark.typed.protobuf import types
from kafkalog_spark.typed.protobuf.descriptors import file_descriptor
from kafkalog_spark.typed.registry.framing import NO_ID, header_name, unframed
from kafkalog_spark.typed.registry.message_indexes import FIRST, message_at, take_indexes
from kafkalog_spark.typed.registry.options import (
    REGISTRY_OPTIONS,
    store_of,
    subject_schema,
    with_records,
)
from kafkalog_spark.typed.registry.schemas import PROTOBUF, NamedSchemas, RegisteredSchema, SchemaStore, referenced

OPTIONS = (
    *types.OPTIONS,
    *REGISTRY_OPTIONS,
    OptionSpec(
        "messageName",
        plain_text,
        None,
        "The message of the subject's schema that the columns are of; by default the first of its file.",
        "format",
    ),
)


def resolve(format: ResolvedFormat, sources: SchemaSources) -> ResolvedFormat:
    """The format with the id of the subject's schema: the latest version is looked up once a load."""
    found = with_records(format, sources)
    return replace(found, reader_id=subject_schema(found.options, store_of(found)).id)


def schema(format: ResolvedFormat) -> pa.Schema:
    """The columns of the subject's message."""
    return pa.schema(list(types.message_type(_reader(format, store_of(format)), types.meaning_of(format.options))))


def decoder(format: ResolvedFormat, projection: pa.Schema) -> ValueDecoder:
    """Raises OptionError, SchemaRegistryError."""
    return ConfluentProtobufDecoder(format, projection)


def encoder(options: Mapping[str, str], given: pa.Schema) -> ValueEncoder:
    """With the subject's latest schema, which must be registered. Raises OptionError, SchemaRegistryError."""
    from kafkalog_spark.typed.protobuf.encoder import ProtobufEncoder

    if "schema.registry.url" not in options or "subject" not in options:
        raise OptionError("to write confluent-protobuf, options schema.registry.url and value.subject are needed")
    if "messagename" in options:
        raise OptionError("confluent-protobuf writes the first message of the subject's file")
    store = store_of(ResolvedFormat("confluent-protobuf", options))
    found = subject_schema(options, store)
    message = message_at(_file(found, store), FIRST)
    return ProtobufEncoder(message, given, prefix=b"\0" + found.id.to_bytes(4, "big") + b"\0")


def _file(registered: RegisteredSchema, store: SchemaStore) -> Any:
    """The file's descriptor. Raises OptionError, SchemaRegistryError."""
    if registered.kind != PROTOBUF:
        raise OptionError(f"schema {registered.id} is one of {registered.kind}, not of Protobuf")
    imported = {name: one.text for name, one in referenced(registered, store).items()}
    return file_descriptor(registered.text, imported, f"schema {registered.id} of {store.described}")


def _reader(format: ResolvedFormat, store: SchemaStore) -> Any:
    if format.reader_id is not None:
        registered = store.by_id(format.reader_id)
    else:
        registered = subject_schema(format.options, store)
    if registered is None:
        raise SchemaRegistryError(f"{store.described} does not have schema {format.reader_id} any more")
    file = _file(registered, store)
    name = format.options.get("messagename")
    if name is None:
        return message_at(file, FIRST)
    try:
        return file.pool.FindMessageTypeByName(name)
    except KeyError:
        found = file.message_types_by_name.get(name)
        if found is None:
            raise OptionError(f"schema {registered.id} has no message {name}") from None
        return found


class ConfluentProtobufDecoder:
    """Decodes messages of the schemas and indexes that they name. `headers_too`: the id may be in a header."""

    headers_too = True

    def __init__(self, format: ResolvedFormat, projection: pa.Schema) -> None:
        from kafkalog_spark.typed.protobuf.reading import ProtobufReading  # loads numba

        self.schema = projection
        self._store = store_of(format)
        self._reading = ProtobufReading(_reader(format, self._store), projection, types.meaning_of(format.options))
        self._header = header_name(format.side)
        self._named = NamedSchemas[Any, tuple[int, ...]](
            self._store,
            self._reading,
            lambda found: _file(found, self._store),
            lambda file, indexes: self._reading.entry_of(message_at(file, indexes)),
        )

    def decode(self, values: pa.BinaryArray | pa.LargeBinaryArray, headers: Any = None) -> Decoded:
        """As ValueDecoder.decode. Raises SchemaRegistryError where a registry cannot be asked."""
        return self._named.decoded(self._decoded, values, headers)

    def _decoded(self, values: Any, headers: Any) -> Decoded:
        framed = unframed(Values.of(values), headers, self._header)
        data, starts, ends = framed.values
        index_of, indexes = take_indexes(data, starts, np.where(framed.which >= 0, ends, -1))
        pairs = np.where(framed.which >= 0, framed.which * len(indexes) + index_of, -1)
        distinct, places = np.unique(pairs, return_inverse=True)
        found = [self._entry(framed.ids, indexes, pair) for pair in distinct.tolist()]
        entries = np.array([one if isinstance(one, int) else -1 for one in found], np.int64)[places]

        def unknown(i: int) -> str | None:
            reason = found[places[i]]
            return reason if isinstance(reason, str) and ends[i] >= 0 else None

        return self._reading.decode(framed.values, entries, unknown)

    def _entry(self, ids: list[int | str], indexes: list[Any], pair: int) -> int | str:
        if pair < 0:
            return NO_ID
        id_, of_message = ids[pair // len(indexes)], indexes[pair % len(indexes)]
        return of_message if isinstance(of_message, str) else self._named.entry(id_, of_message)
