"""The format `confluent-avro`: Avro values that begin with the ID of their schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from kafkalog_spark.options import OptionSpec, plain_text
from kafkalog_spark.typed import formats
from kafkalog_spark.typed.avro import format as avro_format
from kafkalog_spark.typed.avro import read_options
from kafkalog_spark.typed.avro.format import reader_text
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
    with_records,
)
from kafkalog_spark.typed.registry.schemas import AVRO
from kafkalog_spark.typed.schema_limits import recursion_bounded


class ConfluentAvro(ConfluentFormat):
    OPTIONS = (*read_options.OPTIONS, *REGISTRY_OPTIONS, OptionSpec("schema", plain_text))
    kind, payload_format = AVRO, avro_format

    def resolve(self, format: formats.ResolvedFormat, sources: formats.SchemaSources) -> formats.ResolvedFormat:
        text = reader_text(format)
        if text is not None:
            return replace(with_records(format, sources), reader_text=text)
        return super().resolve(format, sources)

    def reader_schema(self, format: formats.ResolvedFormat, store: SchemaStore) -> AvroType:
        text = reader_text(format)
        subject = lookup_subject(format)
        if text is not None and (format.reader_id is None or store.by_id(format.reader_id, subject) is None):
            return parse_schema(text)
        reader: AvroType = super().reader_schema(format, store)
        return reader

    def _parse_text(self, text: str, references: Mapping[str, str], origin: str) -> AvroType:
        types: dict[str, AvroType] = {}
        with recursion_bounded("an Avro schema"):
            for referenced_text in dict.fromkeys(references.values()):
                _collect_named_types(parse_schema(referenced_text, types), types)
        return parse_schema(text, types)

    def encoder(self, options: Mapping[str, str], row_schema: pa.Schema) -> ValueEncoder:
        """Return an encoder, and register its schema: that of option `schema`, or the one that to_avro derives.

        Raises:
            OptionError: If the schema is invalid or does not match the columns.
            SchemaRegistryError: If the registry does not accept the schema.
        """
        from kafkalog_spark.typed.avro.encoder import AvroEncoder

        check_write_options("confluent-avro", options)
        encoder = AvroEncoder(options.get("schema"), row_schema)
        encoder.prefix = id_prefix(client_of(options).register(options["subject"], encoder.schema_json))
        return encoder


confluent_avro = ConfluentAvro()


def _collect_named_types(avro: AvroType, types: dict[str, AvroType]) -> None:
    """Add the named types in a schema to `types`, by full name."""
    if avro.name:
        if avro.name in types:
            return
        types[avro.name] = avro
    for part in avro.parts:
        _collect_named_types(part, types)
