"""The formats `confluent-avro`, `confluent-json` and `confluent-protobuf`: a schema's id before each value
(framing.py), schemas from a registry, a file, or the topic `_schemas`.

Avro and Protobuf read each value with the schema that it names, as one reader schema: option avroSchema, or the
subject's. JSON needs no schema: the columns of the projection say what it means, as in format `json`.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import OptionError, SchemaRegistryError
from kafkalog_spark.options import OptionSpec, plain_text
from kafkalog_spark.typed import decoder as formats
from kafkalog_spark.typed.avro import format as avro_format
from kafkalog_spark.typed.avro import types as avro_types
from kafkalog_spark.typed.avro.format import reader_text
from kafkalog_spark.typed.avro.schema import AvroType, parse_schema
from kafkalog_spark.typed.columns.binary_values import Values
from kafkalog_spark.typed.json import format as json_format
from kafkalog_spark.typed.protobuf import format as protobuf_format
from kafkalog_spark.typed.protobuf import types as protobuf_types
from kafkalog_spark.typed.protobuf.proto_file import ProtoFile, message_at, proto_file
from kafkalog_spark.typed.registry.framing import FIRST, NO_ID, Framed, take_indexes, unframed
from kafkalog_spark.typed.registry.schema_store import (
    _KIND_NAMES,
    REGISTRY_OPTIONS,
    SchemaStore,
    _subject_of_ids,
    client_of,
    referenced,
    store_of,
    subject_schema,
    with_records,
)
from kafkalog_spark.typed.registry.schemas import AVRO, JSON, PROTOBUF, RegisteredSchema
from kafkalog_spark.typed.schema_files import recursion_bounded

_log = logging.getLogger(__name__)


# The formats.

MOST_SCHEMAS = 1000
"""Writer schemas that are ready at once. Those of a batch that names more are made ready again and again."""
_JSON_OPTIONS = (
    "schema.registry.url",
    "schema.registry.basic.auth.user.info",
    "schema.registry.bearer.auth.token",
    "schema.registry.ssl.ca.location",
)
_REMEMBERED = 10_000
"""Schemas that cannot be had, among others: each is asked for once, unless there are more of them."""


class _SchemaFormat:
    """A format whose values are read with registered schemas. inner: the module of the format without framing;
    indexed: a value names a message of its schema's file as well."""

    OPTIONS: tuple[OptionSpec, ...]
    kind: str
    inner: Any
    indexed = False

    def resolve(self, format: formats.ResolvedFormat, sources: formats.SchemaSources) -> formats.ResolvedFormat:
        """The format with its reader schema: the latest version is looked up once a load."""
        format = with_records(format, sources)
        registered = subject_schema(format.options, store_of(format), self.kind)
        # The registry may have found the subject in another context. Then the ids of values belong to that one.
        options = {**format.options, "subject": registered.subject or format.options["subject"]}
        return replace(format, options=options, reader_text=registered.text, reader_id=registered.id)

    def schema(self, format: formats.ResolvedFormat) -> pa.Schema:
        types = self.inner.types
        columns: pa.Schema = types.columns_of(self.reader(format, store_of(format)), types.meaning_of(format.options))
        return columns

    def decoder(self, format: formats.ResolvedFormat, projection: pa.Schema) -> formats.ValueDecoder:
        return ConfluentDecoder(self, format, projection)

    def reader(self, format: formats.ResolvedFormat, store: SchemaStore) -> Any:
        """The schema that all values are read as. Raises OptionError, SchemaRegistryError."""
        if format.reader_id is None:
            return self.parsed(subject_schema(format.options, store, self.kind), store)
        registered = store.by_id(format.reader_id, _subject_of_ids(format))
        if registered is None:
            raise SchemaRegistryError(f"{store.described} does not have schema {format.reader_id} any more")
        return self.parsed(registered, store)

    def parsed(self, registered: RegisteredSchema, store: SchemaStore) -> Any:
        """A registered schema, with those that it refers to. Raises OptionError, SchemaRegistryError."""
        if registered.kind != self.kind:
            raise OptionError(f"schema {registered.id} is one of {registered.kind}, not of {_KIND_NAMES[self.kind]}")
        named = {name: schema.text for name, schema in referenced(registered, store).items()}
        return self._parsed(registered.text, named, f"schema {registered.id} of {store.described}")

    @abstractmethod
    def _parsed(self, text: str, referenced: Mapping[str, str], place: str) -> Any:
        """A schema's text, with those that it refers to, by name, each after its own. Raises OptionError."""


class _Avro(_SchemaFormat):
    OPTIONS = (*avro_types.OPTIONS, *REGISTRY_OPTIONS, OptionSpec("schema", plain_text))
    kind, inner = AVRO, avro_format

    def resolve(self, format: formats.ResolvedFormat, sources: formats.SchemaSources) -> formats.ResolvedFormat:
        text = reader_text(format)
        if text is not None:
            return replace(with_records(format, sources), reader_text=text)
        return super().resolve(format, sources)

    def reader(self, format: formats.ResolvedFormat, store: SchemaStore) -> AvroType:
        text = reader_text(format)
        subject = _subject_of_ids(format)
        if text is not None and (format.reader_id is None or store.by_id(format.reader_id, subject) is None):
            return parse_schema(text)
        reader: AvroType = super().reader(format, store)
        return reader

    def _parsed(self, text: str, referenced: Mapping[str, str], place: str) -> AvroType:
        types: dict[str, AvroType] = {}
        with recursion_bounded("an Avro schema"):
            for other in dict.fromkeys(referenced.values()):
                _collect_named(parse_schema(other, types), types)
        return parse_schema(text, types)

    def encoder(self, options: Mapping[str, str], given: pa.Schema) -> formats.ValueEncoder:
        """With the schema given, or Spark's to_avro's, registered. Raises OptionError, SchemaRegistryError."""
        from kafkalog_spark.typed.avro.encoder import AvroEncoder

        _check_writable("confluent-avro", options)
        made = AvroEncoder(options.get("schema"), given)
        made.prefix = _id_prefix(client_of(options).register(options["subject"], made.schema_json))
        return made


class _Protobuf(_SchemaFormat):
    OPTIONS = (*protobuf_types.OPTIONS, *REGISTRY_OPTIONS, OptionSpec("messageName", plain_text))
    kind, inner, indexed = PROTOBUF, protobuf_format, True

    def reader(self, format: formats.ResolvedFormat, store: SchemaStore) -> Any:
        file: ProtoFile = super().reader(format, store)
        name = format.options.get("messagename")
        if name is None:
            return message_at(file, FIRST)
        try:
            return file.descriptor.pool.FindMessageTypeByName(name)
        except KeyError:
            if name not in file.descriptor.message_types_by_name:
                subject = format.options.get("subject")
                raise OptionError(f"the schema of subject {subject} has no message {name}") from None
            return file.descriptor.message_types_by_name[name]

    def _parsed(self, text: str, referenced: Mapping[str, str], place: str) -> ProtoFile:
        return proto_file(text, referenced, place)

    def encoder(self, options: Mapping[str, str], given: pa.Schema) -> formats.ValueEncoder:
        """With the subject's latest schema, which must be registered. Raises OptionError, SchemaRegistryError."""
        from kafkalog_spark.typed.protobuf.encoder import ProtobufEncoder

        _check_writable("confluent-protobuf", options)
        if "messagename" in options:
            raise OptionError("confluent-protobuf writes the first message of the subject's file")
        store = client_of(options)
        registered = subject_schema(options, store, PROTOBUF)
        message = message_at(self.parsed(registered, store), FIRST)
        return ProtobufEncoder(message, given, prefix=_id_prefix(registered.id) + b"\0")


class _Json:
    OPTIONS = (
        *json_format.OPTIONS,
        *(spec for spec in REGISTRY_OPTIONS if spec.name in _JSON_OPTIONS),
        OptionSpec("subject", plain_text),
    )
    schema = staticmethod(json_format.schema)

    def decoder(self, format: formats.ResolvedFormat, projection: pa.Schema) -> formats.ValueDecoder:
        return ConfluentJsonDecoder(format, projection)

    def encoder(self, options: Mapping[str, str], given: pa.Schema) -> formats.ValueEncoder:
        """Raises OptionError, also for a column that is no text; SchemaRegistryError for a subject without a schema."""
        from kafkalog_spark.typed.columns.text_slices import is_binary, is_text  # loads numba

        column = given.field(0)
        if given.names not in (["value"], ["key"]) or not (is_text(column.type) or is_binary(column.type)):
            raise OptionError(
                f"confluent-json puts a schema's id before a column value or key of JSON texts, got "
                f"{', '.join(f'{field.name} {field.type}' for field in given)}",
                hint="write to_json(struct(...)) AS value",
            )
        _check_writable("confluent-json", options)
        return FramingEncoder(_id_prefix(subject_schema(options, client_of(options), JSON).id))


confluent_avro, confluent_json, confluent_protobuf = _Avro(), _Json(), _Protobuf()


def _collect_named(avro: AvroType, types: dict[str, AvroType]) -> None:
    if avro.name:
        if avro.name in types:
            return
        types[avro.name] = avro
    for part in avro.parts:
        _collect_named(part, types)


class ConfluentDecoder:
    """Decodes values of the schemas that they name; `headers_too`: an id may be in a header, given to `decode`."""

    headers_too = True

    def __init__(self, inner: _SchemaFormat, format: formats.ResolvedFormat, projection: pa.Schema) -> None:
        self.schema = projection
        self._inner, self._store, self._side = inner, store_of(format), format.side
        self._subject = _subject_of_ids(format)
        reader = inner.reader(format, self._store)
        self._reading = inner.inner.reading(reader, projection, format.options)
        self._ready = 0
        self._parsed = lru_cache(MOST_SCHEMAS)(self._look_up)
        self._entry = lru_cache(_REMEMBERED)(self._add_entry)

    def decode(self, values: pa.BinaryArray | pa.LargeBinaryArray, headers: Any = None) -> formats.Decoded:
        """As ValueDecoder.decode, at once, or in halves where there are more schemas than room. headers: the records'
        own. Raises SchemaRegistryError where a registry cannot be asked: that says nothing of the value."""
        of_other_batches = self._ready
        try:
            return self._decode(values, headers)
        except _Full:
            self._reading.forget()
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
        return formats.Decoded(
            pa.concat_arrays([first.columns, second.columns]),
            np.concatenate(bad),
            lambda i: first.why(i) if i < half else second.why(i - half),
        )

    def _decode(self, values: Any, headers: Any) -> formats.Decoded:
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

        decoded: formats.Decoded = self._reading.decode(framed.values, entries, unknown)
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

    def decode(self, values: pa.BinaryArray | pa.LargeBinaryArray, headers: Any = None) -> formats.Decoded:
        framed = unframed(Values.of(values), headers, self._side)
        unnamed = (framed.which < 0) & (framed.values.ends >= 0)
        decoded = self._inner.decode(_as_array(framed))
        if not unnamed.any():
            return decoded
        bad = unnamed if decoded.bad is None else decoded.bad | unnamed
        return formats.Decoded(decoded.columns, bad, lambda i: NO_ID if unnamed[i] else decoded.why(i))


def _as_array(framed: Framed) -> pa.Array:
    """The values without prefixes, as one array; one that names no schema is empty, which is bad in JSON too."""
    data, starts, ends = framed.values
    sizes = np.where((ends >= 0) & (framed.which >= 0), ends - starts, 0)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    places = np.repeat(starts - offsets[:-1], sizes) + np.arange(offsets[-1])
    bits = pa.py_buffer(np.packbits(ends >= 0, bitorder="little"))
    buffers = [bits, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data[places])]
    return pa.Array.from_buffers(pa.binary(), len(starts), buffers)


class FramingEncoder:
    """Puts a prefix before each text, which is not looked into."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix

    def encode(self, columns: pa.StructArray) -> pa.BinaryArray:
        from kafkalog_spark.typed.columns.byte_slices import ByteSlices, Fragment, as_values, valid_of

        column = columns.flatten()[0]
        return as_values([Fragment(ByteSlices.of(column))], self._prefix, valid_of(column))


def _check_writable(name: str, options: Mapping[str, str]) -> None:
    if "schema.registry.url" not in options or "subject" not in options:
        raise OptionError(f"to write {name}, options schema.registry.url and value.subject are needed")


def _id_prefix(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big")
