"""The format `confluent-protobuf`: Protobuf with a schema's id and the indexes of the message before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import OptionError, SchemaRegistryError
from kafkalog_spark.typed.columns.values import Values
from kafkalog_spark.typed.decoder import Decoded, SchemaSources, ValueDecoder, ValueEncoder
from kafkalog_spark.typed.protobuf import types
from kafkalog_spark.typed.protobuf.sources import file_descriptor
from kafkalog_spark.typed.registry.framing import NO_ID, header_name, unframed
from kafkalog_spark.typed.registry.message_indexes import FIRST, message_at, take_indexes
from kafkalog_spark.typed.registry.named_schemas import NamedSchemas
from kafkalog_spark.typed.registry.options import (
    REGISTRY_OPTIONS,
    settled_registry,
    store_of,
    subject_schema,
)
from kafkalog_spark.typed.registry.schemas import PROTOBUF, RegisteredSchema, SchemaStore

OPTIONS: Mapping[str, str] = {
    **types.OPTIONS,
    **REGISTRY_OPTIONS,
    "messageName": "The message of the subject's schema that the columns are of; by default the first of its file.",
}


def settled(options: Mapping[str, str], sources: SchemaSources) -> dict[str, str]:
    """The options with the id of the subject's schema: the latest version is looked up once a query."""
    found = settled_registry(options, sources)
    found["schema.side"] = sources.side
    if "schema.reader.id" not in found:
        found["schema.reader.id"] = str(subject_schema(found, store_of(found)).id)
    return found


def schema(options: Mapping[str, str]) -> pa.Schema:
    """The columns of the subject's message."""
    return pa.schema(list(types.message_type(_reader(options, store_of(options)), types.meaning_of(options))))


def decoder(options: Mapping[str, str], wanted: pa.Schema) -> ValueDecoder:
    """Raises OptionError, SchemaRegistryError."""
    return ConfluentProtobufDecoder(options, wanted)


def encoder(options: Mapping[str, str], given: pa.Schema) -> ValueEncoder:
    """With the subject's latest schema, which must be registered. Raises OptionError, SchemaRegistryError."""
    from kafkalog_spark.typed.protobuf.encoder import ProtobufEncoder

    if "schema.registry.url" not in options or "subject" not in options:
        raise OptionError("to write confluent-protobuf, options schema.registry.url and value.subject are needed")
    if "messagename" in options:
        raise OptionError("confluent-protobuf writes the first message of the subject's file")
    store = store_of(options)
    found = subject_schema(options, store)
    message = message_at(_file(found, store), FIRST)
    return ProtobufEncoder(message, given, prefix=b"\0" + found.id.to_bytes(4, "big") + b"\0")


def _file(registered: RegisteredSchema, store: SchemaStore) -> Any:
    """The file's descriptor. Raises OptionError, SchemaRegistryError."""
    if registered.kind != PROTOBUF:
        raise OptionError(f"schema {registered.id} is one of {registered.kind}, not of Protobuf")
    imported: dict[str, str] = {}
    _add_imported(registered, store, imported)
    return file_descriptor(registered.text, imported, f"schema {registered.id} of {store.described}")


def _add_imported(registered: RegisteredSchema, store: SchemaStore, imported: dict[str, str]) -> None:
    for reference in registered.references:
        if reference.name in imported:
            continue
        found = store.by_version(reference.subject, reference.version)
        if found is None:
            raise SchemaRegistryError(
                f"schema {registered.id} imports version {reference.version} of {reference.subject}, which "
                f"{store.described} does not have"
            )
        imported[reference.name] = found.text
        _add_imported(found, store, imported)


def _reader(options: Mapping[str, str], store: SchemaStore) -> Any:
    if "schema.reader.id" in options:
        registered = store.by_id(int(options["schema.reader.id"]))
    else:
        registered = subject_schema(options, store)
    if registered is None:
        raise SchemaRegistryError(f"{store.described} does not have schema {options['schema.reader.id']} any more")
    file = _file(registered, store)
    name = options.get("messagename")
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

    def __init__(self, options: Mapping[str, str], wanted: pa.Schema) -> None:
        from kafkalog_spark.typed.protobuf.reading import ProtobufReading  # loads numba

        self.schema = wanted
        self._store = store_of(options)
        self._reading = ProtobufReading(_reader(options, self._store), wanted, types.meaning_of(options))
        self._header = header_name(options.get("schema.side", "value"))
        self._files: dict[int | str, Any] = {}
        self._named = NamedSchemas[tuple[int, ...]](self._store, self._ready, (OptionError, LookupError))

    def decode(self, values: pa.BinaryArray | pa.LargeBinaryArray, headers: Any = None) -> Decoded:
        """As ValueDecoder.decode. Raises SchemaRegistryError where a registry cannot be asked."""
        framed = unframed(Values.of(values), headers, self._header)
        data, starts, ends = framed.values
        index_of, indexes = take_indexes(data, starts, np.where(framed.which >= 0, ends, -1))
        pairs = framed.which * len(indexes) + index_of
        entries = np.full(len(starts), -1, np.int64)
        reasons: dict[int, str] = {}
        for pair in np.unique(pairs[framed.which >= 0]):
            found = self._entry(framed.ids[int(pair) // len(indexes)], indexes[int(pair) % len(indexes)])
            if isinstance(found, int):
                entries[pairs == pair] = found
            else:
                reasons[int(pair)] = found

        def unknown(i: int) -> str | None:
            if entries[i] >= 0 or ends[i] < 0:
                return None
            if framed.which[i] < 0:
                return NO_ID
            return reasons.get(int(pairs[i]))

        return self._reading.decode(framed.values, entries, unknown)

    def _entry(self, id_: int | str, indexes: Any) -> int | str:
        return indexes if isinstance(indexes, str) else self._named.entry(id_, indexes)

    def _ready(self, id_: int | str, found: RegisteredSchema, indexes: tuple[int, ...]) -> int | str:
        if id_ not in self._files:
            self._files[id_] = _file(found, self._store)
        return self._reading.entry_of(message_at(self._files[id_], indexes))
