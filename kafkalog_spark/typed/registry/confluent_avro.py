"""The format `confluent-avro`: Avro values that begin with the ID of their schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from kafkalog_spark.options import OptionSpec, plain_text
from kafkalog_spark.typed import formats
from kafkalog_spark.typed.avro import format as avro_format
from kafkalog_spark.typed.avro import read_options
from kafkalog_spark.typed.avro.format import reader_schema_text
from kafkalog_spark.typed.avro.schema import AvroType, parse_schema
from kafkalog_spark.typed.decoder import ValueEncoder
from kafkalog_spark.typed.registry.confluent_format import ConfluentFormat
from kafkalog_spark.typed.registry.framing import id_prefix
from kafkalog_spark.typed.registry.schema_store import (
    REGISTRY_OPTIONS,
    SchemaStore,
    check_write_options,
    client_of,
    lookup_subject,
    with_schema_records,
)
from kafkalog_spark.typed.registry.schemas import AVRO
from kafkalog_spark.typed.schema_limits import recursion_bounded


class ConfluentAvro(ConfluentFormat):
    """Avro values with schema IDs.

    Option avroSchema or avroSchemaUrl may give the reader schema, as for the format `avro`. Without them the reader
    schema is the one of the subject, as in the base class.
    """

    OPTIONS = (*read_options.OPTIONS, *REGISTRY_OPTIONS, OptionSpec("schema", plain_text))
    kind = AVRO
    payload_module = avro_format

    def resolve(self, format: formats.ResolvedFormat, sources: formats.SchemaSources) -> formats.ResolvedFormat:
        """Resolve as the base class does, but without a look-up of the subject if an option gives the reader schema."""
        text = reader_schema_text(format)
        if text is None:
            return super().resolve(format, sources)
        return replace(with_schema_records(format, sources), reader_text=text)

    def reader_schema(self, format: formats.ResolvedFormat, store: SchemaStore) -> AvroType:
        """Return the reader schema from the store, or parse its text.

        A schema that an option gave has no ID, so it is not in the store.
        """
        text = reader_schema_text(format)
        is_in_store = format.reader_id is not None and store.by_id(format.reader_id, lookup_subject(format)) is not None
        if text is not None and not is_in_store:
            return parse_schema(text)
        reader: AvroType = super().reader_schema(format, store)
        return reader

    def _parse_text(self, text: str, references: Mapping[str, str], origin: str) -> AvroType:
        named_types: dict[str, AvroType] = {}
        with recursion_bounded("an Avro schema"):
            for referenced_text in dict.fromkeys(references.values()):
                _collect_named_types(parse_schema(referenced_text, named_types), named_types)
        return parse_schema(text, named_types)  # parse_schema limits the recursion itself

    def encoder(self, options: Mapping[str, str], row_schema: pa.Schema) -> ValueEncoder:
        """Register the schema (option `schema`, else derived from the columns as to_avro does); return its encoder.

        Raises:
            OptionError: If the schema is invalid or does not match the columns.
            SchemaRegistryError: If the registry does not accept the schema.
        """
        from kafkalog_spark.typed.avro.encoder import AvroEncoder

        check_write_options("confluent-avro", options)
        encoder = AvroEncoder(options.get("schema"), row_schema)
        encoder.prefix = id_prefix(client_of(options).register(options["subject"], encoder.schema_json))
        return encoder


def _collect_named_types(schema: AvroType, named_types: dict[str, AvroType]) -> None:
    """Add the named types in a schema to `named_types`, by full name."""
    if schema.name:
        if schema.name in named_types:
            return
        named_types[schema.name] = schema
    for child in schema.parts:
        _collect_named_types(child, named_types)


confluent_avro = ConfluentAvro()
"""The instance that `formats.py` names."""
