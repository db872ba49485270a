"""The format `avro`: values in Avro's binary encoding, one schema for all, with the meaning of Spark's from_avro."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.options import OptionSpec, plain_text
from kafkalog_spark.typed import formats
from kafkalog_spark.typed.avro import types
from kafkalog_spark.typed.avro.reading import AvroReading
from kafkalog_spark.typed.avro.schema import PRIMITIVES, AvroType, given_text, parse_schema
from kafkalog_spark.typed.columns.reading import SingleSchemaDecoder
from kafkalog_spark.typed.decoder import ValueDecoder, ValueEncoder

OPTIONS = (OptionSpec("schema", plain_text), *types.OPTIONS)


def resolve(format: formats.ResolvedFormat, sources: formats.SchemaSources) -> formats.ResolvedFormat:
    """The format with the texts of schemas in the place of their files'."""
    written = _writer_text(format.options)
    options = {**format.options, "schema": written} if written is not None else format.options
    return replace(format, options=options, reader_text=reader_text(format))


def schema(format: formats.ResolvedFormat) -> pa.Schema:
    """The columns of the reader schema, which is the writer's where there is no other."""
    _, reader, meaning = _schemas(format)
    return types.columns_of(reader, meaning)


def decoder(format: formats.ResolvedFormat, projection: pa.Schema) -> ValueDecoder:
    """As in Spark, bytes after a value count for nothing. Raises OptionError."""
    writer, reader, _ = _schemas(format)
    return SingleSchemaDecoder(reading(reader, projection, format.options), writer)


def reading(reader: AvroType, projection: pa.Schema, options: Mapping[str, str]) -> AvroReading:
    return AvroReading(reader, projection, types.meaning_of(options))


def encoder(options: Mapping[str, str], given: pa.Schema) -> ValueEncoder:
    """Raises OptionError. Without option `schema`, the one that Spark's to_avro makes of the columns."""
    from kafkalog_spark.typed.avro.encoder import AvroEncoder

    return AvroEncoder(options.get("schema"), given)


def reader_text(format: formats.ResolvedFormat) -> str | None:
    """The reader schema as it was looked up, or as the options say it. Raises OptionError."""
    options = format.options
    if format.reader_text is not None:
        return format.reader_text
    if "avroschema" in options:
        return given_text("avroSchema", options["avroschema"])
    if "avroschemaurl" in options:
        return given_text("avroSchemaUrl", options["avroschemaurl"])
    return None


def _writer_text(options: Mapping[str, str]) -> str | None:
    text = options.get("schema")
    return text if text is None or text.strip() in PRIMITIVES else given_text("value.schema", text)


def _schemas(format: formats.ResolvedFormat) -> tuple[AvroType, AvroType, types.AvroMeaning]:
    text = _writer_text(format.options)
    if text is None:
        raise OptionError(
            "values in Avro say nothing of their schema, and neither does an option",
            hint="option value.schema is the schema they were written with, as JSON or as a file's path; values with a "
            "registry's prefix are of format confluent-avro",
        )
    reader = reader_text(format)
    writer = _parsed(text)
    return writer, writer if reader is None else _parsed(reader), types.meaning_of(format.options)


@lru_cache(64)
def _parsed(text: str) -> AvroType:
    return parse_schema(text)
