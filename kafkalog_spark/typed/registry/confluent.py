"""The formats `confluent-avro`, `confluent-json` and `confluent-protobuf`.

Each value begins with the ID of its schema (framing.py). Schemas come from a registry, a file, or the topic `_schemas`.
Avro and Protobuf values are read with the schema that they name, as one reader schema: that of option avroSchema, or
the subject's. JSON values are read without a schema, as in format `json`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import OptionError, SchemaRegistryError
from kafkalog_spark.options import OptionSpec, plain_text
from kafkalog_spark.typed import formats
from kafkalog_spark.typed.avro import format as avro_format
from kafkalog_spark.typed.avro import read_options as avro_read_options
from kafkalog_spark.typed.avro.format import reader_text
from kafkalog_spark.typed.avro.schema import AvroType, parse_schema
from kafkalog_spark.typed.decoder import ValueDecoder, ValueEncoder
from kafkalog_spark.typed.json import format as json_format
from kafkalog_spark.typed.protobuf import format as protobuf_format
from kafkalog_spark.typed.protobuf import read_options as protobuf_read_options
from kafkalog_spark.typed.protobuf.message_indexes import message_at
from kafkalog_spark.typed.protobuf.proto_file import ProtoFile, compile_schema
from kafkalog_spark.typed.registry.confluent_decoder import ConfluentDecoder, ConfluentJsonDecoder
from kafkalog_spark.typed.registry.confluent_encoder import FramingEncoder
from kafkalog_spark.typed.registry.framing import FIRST
from kafkalog_spark.typed.registry.schema_store import (
    KIND_NAMES,
    REGISTRY_OPTIONS,
    SchemaStore,
    client_of,
    lookup_subject,
    referenced,
    store_of,
    subject_schema,
    with_records,
)
from kafkalog_spark.typed.registry.schemas import AVRO, JSON, PROTOBUF, RegisteredSchema
from kafkalog_spark.typed.schema_limits import recursion_bounded

_JSON_OPTIONS = (
    "schema.registry.url",
    "schema.registry.basic.auth.user.info",
    "schema.registry.bearer.auth.token",
    "schema.registry.ssl.ca.location",
)


class ConfluentFormat:
    """A format whose values are decoded with registered schemas."""

    OPTIONS: tuple[OptionSpec, ...]
    kind: str  # AVRO or PROTOBUF
    inner: Any  # module of the format without framing
    indexed = False  # whether the ID is followed by the indexes of a message in the schema's file

    def resolve(self, format: formats.ResolvedFormat, sources: formats.SchemaSources) -> formats.ResolvedFormat:
        """Return the format with its reader schema. So all tasks of a load use the same version of the subject."""
        format = with_records(format, sources)
        registered = subject_schema(format.options, store_of(format), self.kind)
        # The registry may have found the subject in another context. Then the IDs of values belong to that context.
        options = {**format.options, "subject": registered.subject or format.options["subject"]}
        return replace(format, options=options, reader_text=registered.text, reader_id=registered.id)

    def schema(self, format: formats.ResolvedFormat) -> pa.Schema:
        """Return the columns of the reader schema."""
        columns: pa.Schema = self.inner.columns(self.reader(format, store_of(format)), format.options)
        return columns

    def decoder(self, format: formats.ResolvedFormat, projection: pa.Schema) -> ValueDecoder:
        return ConfluentDecoder(self, format, projection)

    def reader(self, format: formats.ResolvedFormat, store: SchemaStore) -> Any:
        """Return the reader schema in the form of the inner format.

        Args:
            format: The resolved format.
            store: Where its schemas come from.

        Raises:
            OptionError: If the schema is invalid.
            SchemaRegistryError: If it cannot be looked up.
        """
        if format.reader_id is None:
            return self.parsed(subject_schema(format.options, store, self.kind), store)
        registered = store.by_id(format.reader_id, lookup_subject(format))
        if registered is None:
            raise SchemaRegistryError(f"{store.described} does not have schema {format.reader_id} any longer")
        return self.parsed(registered, store)

    def parsed(self, registered: RegisteredSchema, store: SchemaStore) -> Any:
        """Parse a registered schema and the schemas that it refers to.

        Args:
            registered: The schema.
            store: Where the references are looked up.

        Returns:
            The schema in the form of the inner format.

        Raises:
            OptionError: If the schema is of another kind or invalid, or a reference does not exist.
            SchemaRegistryError: If a reference cannot be looked up.
        """
        if registered.kind != self.kind:
            raise OptionError(f"schema {registered.id} is one of {registered.kind}, not of {KIND_NAMES[self.kind]}")
        named = {name: schema.text for name, schema in referenced(registered, store).items()}
        return self._parsed(registered.text, named, f"schema {registered.id} of {store.described}")

    @abstractmethod
    def _parsed(self, text: str, referenced: Mapping[str, str], origin: str) -> Any:
        """Parse a schema. Raises OptionError.

        Args:
            text: The schema.
            referenced: Texts of the schemas that it refers to, by name. Each comes after those that it needs itself.
            origin: Where the schema comes from, for errors.
        """


class ConfluentAvro(ConfluentFormat):
    OPTIONS = (*avro_read_options.OPTIONS, *REGISTRY_OPTIONS, OptionSpec("schema", plain_text))
    kind, inner = AVRO, avro_format

    def resolve(self, format: formats.ResolvedFormat, sources: formats.SchemaSources) -> formats.ResolvedFormat:
        text = reader_text(format)
        if text is not None:
            return replace(with_records(format, sources), reader_text=text)
        return super().resolve(format, sources)

    def reader(self, format: formats.ResolvedFormat, store: SchemaStore) -> AvroType:
        text = reader_text(format)
        subject = lookup_subject(format)
        if text is not None and (format.reader_id is None or store.by_id(format.reader_id, subject) is None):
            return parse_schema(text)
        reader: AvroType = super().reader(format, store)
        return reader

    def _parsed(self, text: str, referenced: Mapping[str, str], origin: str) -> AvroType:
        types: dict[str, AvroType] = {}
        with recursion_bounded("an Avro schema"):
            for other in dict.fromkeys(referenced.values()):
                _collect_named(parse_schema(other, types), types)
        return parse_schema(text, types)

    def encoder(self, options: Mapping[str, str], given: pa.Schema) -> ValueEncoder:
        """Return an encoder, and register its schema: that of option `schema`, or the one that to_avro derives.

        Raises:
            OptionError: If the schema is invalid or does not match the columns.
            SchemaRegistryError: If the registry does not accept the schema.
        """
        from kafkalog_spark.typed.avro.encoder import AvroEncoder

        _check_writable("confluent-avro", options)
        encoder = AvroEncoder(options.get("schema"), given)
        encoder.prefix = _id_prefix(client_of(options).register(options["subject"], encoder.schema_json))
        return encoder


class ConfluentProtobuf(ConfluentFormat):
    OPTIONS = (*protobuf_read_options.OPTIONS, *REGISTRY_OPTIONS, OptionSpec("messageName", plain_text))
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

    def _parsed(self, text: str, referenced: Mapping[str, str], origin: str) -> ProtoFile:
        return compile_schema(text, referenced, origin)

    def encoder(self, options: Mapping[str, str], given: pa.Schema) -> ValueEncoder:
        """Return an encoder with the latest schema of the subject, which must exist.

        Raises:
            OptionError: If the schema is invalid or does not match the columns.
            SchemaRegistryError: If the schema cannot be looked up.
        """
        from kafkalog_spark.typed.protobuf.encoder import ProtobufEncoder

        _check_writable("confluent-protobuf", options)
        if "messagename" in options:
            raise OptionError(
                "confluent-protobuf always writes the first message of the subject's file; remove option 'messageName'"
            )
        store = client_of(options)
        registered = subject_schema(options, store, PROTOBUF)
        message = message_at(self.parsed(registered, store), FIRST)
        return ProtobufEncoder(message, given, prefix=_id_prefix(registered.id) + b"\0")


class ConfluentJson:
    """The format `confluent-json`. Values name a schema, but are read without one."""

    OPTIONS = (
        *json_format.OPTIONS,
        *(spec for spec in REGISTRY_OPTIONS if spec.name in _JSON_OPTIONS),
        OptionSpec("subject", plain_text),
    )
    schema = staticmethod(json_format.schema)

    def decoder(self, format: formats.ResolvedFormat, projection: pa.Schema) -> ValueDecoder:
        return ConfluentJsonDecoder(format, projection)

    def encoder(self, options: Mapping[str, str], given: pa.Schema) -> ValueEncoder:
        """Return an encoder that puts the ID of the subject's latest schema before JSON texts.

        Raises:
            OptionError: If the rows do not have exactly one column `value` or `key` of strings or bytes.
            SchemaRegistryError: If the subject has no schema.
        """
        from kafkalog_spark.typed.columns.type_predicates import is_binary, is_text

        column = given.field(0)
        if given.names not in (["value"], ["key"]) or not (is_text(column.type) or is_binary(column.type)):
            raise OptionError(
                f"confluent-json writes one column value or key of JSON texts after a schema's ID, got "
                f"{', '.join(f'{field.name} {field.type}' for field in given)}",
                hint="write to_json(struct(...)) AS value",
            )
        _check_writable("confluent-json", options)
        return FramingEncoder(_id_prefix(subject_schema(options, client_of(options), JSON).id))


confluent_avro, confluent_json, confluent_protobuf = ConfluentAvro(), ConfluentJson(), ConfluentProtobuf()


def _collect_named(avro: AvroType, types: dict[str, AvroType]) -> None:
    """Add the named types in a schema to `types`, by full name."""
    if avro.name:
        if avro.name in types:
            return
        types[avro.name] = avro
    for part in avro.parts:
        _collect_named(part, types)


def _check_writable(name: str, options: Mapping[str, str]) -> None:
    if "schema.registry.url" not in options or "subject" not in options:
        raise OptionError(f"to write {name}, options schema.registry.url and value.subject are needed")


def _id_prefix(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big")
