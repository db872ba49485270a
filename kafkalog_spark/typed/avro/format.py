"""The format `avro`: values in Avro's binary encoding, all with one schema, decoded like Spark's from_avro."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.options import OptionSpec, plain_text
from kafkalog_spark.typed import formats
from kafkalog_spark.typed.avro import read_options
from kafkalog_spark.typed.avro.resolving_decoder import AvroResolvingDecoder
from kafkalog_spark.typed.avro.schema import PRIMITIVES, AvroType, parse_schema, schema_option_text
from kafkalog_spark.typed.avro.types import columns_of
from kafkalog_spark.typed.columns.resolving_decoder import SingleSchemaDecoder
from kafkalog_spark.typed.decoder import ValueDecoder, ValueEncoder

OPTIONS = (OptionSpec("schema", plain_text), *read_options.OPTIONS)


def resolve(format: formats.ResolvedFormat, sources: formats.SchemaSources) -> formats.ResolvedFormat:
    """Return the format with the content of the schema files that its options name."""
    writer_text = _writer_text(format.options)
    options = format.options if writer_text is None else {**format.options, "schema": writer_text}
    return replace(format, options=options, reader_text=reader_schema_text(format))


def schema(format: formats.ResolvedFormat) -> pa.Schema:
    """Return the columns of the reader schema, or of the writer schema if there is no reader schema."""
    _, reader = _schemas(format)
    return columns(reader, format.options)


def columns(reader: AvroType, options: Mapping[str, str]) -> pa.Schema:
    """Return the columns of a reader schema. Raises OptionError if Spark cannot read it."""
    return columns_of(reader, read_options.read_options_of(options))


def decoder(format: formats.ResolvedFormat, projection: pa.Schema) -> ValueDecoder:
    """Return a decoder. As in Spark, it ignores bytes after the end of a value. Raises OptionError."""
    writer, reader = _schemas(format)
    return SingleSchemaDecoder(resolving_decoder(reader, projection, format.options), writer)


def resolving_decoder(reader: AvroType, projection: pa.Schema, options: Mapping[str, str]) -> AvroResolvingDecoder:
    """Return a decoder of values with any number of writer schemas.

    Args:
        reader: The reader schema.
        projection: Columns to decode.
        options: Options of the format by lower-case name.

    Raises:
        OptionError: If an option is invalid, or a projected column does not match the reader schema.
    """
    return AvroResolvingDecoder(reader, projection, read_options.read_options_of(options))


def encoder(options: Mapping[str, str], row_schema: pa.Schema) -> ValueEncoder:
    """Return an encoder with the schema of option `schema`, or else the one that Spark's to_avro derives.

    Raises:
        OptionError: If the schema is invalid or does not match the columns.
    """
    from kafkalog_spark.typed.avro.encoder import AvroEncoder

    return AvroEncoder(options.get("schema"), row_schema)


def reader_schema_text(format: formats.ResolvedFormat) -> str | None:
    """Return the text of the reader schema: the resolved one, or that of the options; None if there is none.

    Raises:
        OptionError: If an option names a file that cannot be read.
    """
    options = format.options
    if format.reader_text is not None:
        return format.reader_text
    if "avroschema" in options:
        return schema_option_text("avroSchema", options["avroschema"])
    if "avroschemaurl" in options:
        return schema_option_text("avroSchemaUrl", options["avroschemaurl"])
    return None


def _schemas(format: formats.ResolvedFormat) -> tuple[AvroType, AvroType]:
    """Return the writer and the reader schema."""
    text = _writer_text(format.options)
    if text is None:
        raise OptionError(
            "values in Avro do not contain their schema, and no option names it",
            hint="option value.schema is the schema they were written with, as JSON or as a file's path; values with a "
            "registry's prefix are of format confluent-avro",
        )
    reader = reader_schema_text(format)
    writer = _parsed(text)
    return writer, writer if reader is None else _parsed(reader)


def _writer_text(options: Mapping[str, str]) -> str | None:
    text = options.get("schema")
    return text if text is None or text.strip() in PRIMITIVES else schema_option_text("value.schema", text)


@lru_cache(64)
def _parsed(text: str) -> AvroType:
    return parse_schema(text)
