"""The format `protobuf`: values of one message type, decoded like Spark's from_protobuf."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.options import OptionSpec, plain_text
from kafkalog_spark.typed import formats
from kafkalog_spark.typed.columns.resolving_decoder import SingleSchemaDecoder
from kafkalog_spark.typed.decoder import ValueDecoder, ValueEncoder
from kafkalog_spark.typed.protobuf import arrow_types, read_options
from kafkalog_spark.typed.protobuf.descriptors import message_of, pool_of
from kafkalog_spark.typed.schema_files import file_bytes

if TYPE_CHECKING:
    from kafkalog_spark.typed.protobuf.resolving_decoder import ProtobufResolvingDecoder

OPTIONS = (OptionSpec("descFilePath", plain_text), OptionSpec("messageName", plain_text), *read_options.OPTIONS)


def resolve(format: formats.ResolvedFormat, sources: formats.SchemaSources) -> formats.ResolvedFormat:
    """Return the format with the content of the descriptor set that its options name."""
    return replace(format, descriptors=_content(format.options))


def schema(format: formats.ResolvedFormat) -> pa.Schema:
    """Return the columns of the message."""
    return columns(_descriptor(format.options, format.descriptors), format.options)


def columns(reader: Any, options: Mapping[str, str]) -> pa.Schema:
    """Return the columns of a message descriptor. Raises OptionError if Spark cannot read it."""
    return arrow_types.columns_of(reader, read_options.read_options_of(options))


def decoder(format: formats.ResolvedFormat, projection: pa.Schema) -> ValueDecoder:
    """Return a decoder. Raises OptionError if the projection does not match the message."""
    descriptor = _descriptor(format.options, format.descriptors)
    return SingleSchemaDecoder(resolving_decoder(descriptor, projection, format.options), descriptor)


def resolving_decoder(reader: Any, projection: pa.Schema, options: Mapping[str, str]) -> ProtobufResolvingDecoder:
    """Return a decoder of values with any number of writer descriptors.

    Args:
        reader: Descriptor of the message that values are read as.
        projection: Columns to decode.
        options: Options of the format by lower-case name.

    Raises:
        OptionError: If an option is invalid, or a projected column does not match the message.
    """
    from kafkalog_spark.typed.protobuf.resolving_decoder import ProtobufResolvingDecoder  # loads numba

    return ProtobufResolvingDecoder(reader, projection, read_options.read_options_of(options))


def encoder(options: Mapping[str, str], row_schema: pa.Schema) -> ValueEncoder:
    """Return an encoder. Raises OptionError if the columns do not match the message."""
    from kafkalog_spark.typed.protobuf.encoder import ProtobufEncoder

    return ProtobufEncoder(_descriptor(options), row_schema)


def _content(options: Mapping[str, str]) -> bytes:
    path = options.get("descfilepath")
    if path is None:
        raise OptionError(
            "values in Protobuf do not contain their schema, and no option names it",
            hint="descFilePath names a descriptor set, messageName the message; values with a registry's prefix are of "
            "format confluent-protobuf",
        )
    return file_bytes("descFilePath", path)


def _descriptor(options: Mapping[str, str], content: bytes | None = None) -> Any:
    if "messagename" not in options:
        raise OptionError("option 'messageName' is missing: it names the message type of the values")
    origin = options.get("descfilepath", "the descriptor set")
    pool, names = pool_of(_content(options) if content is None else content, origin)
    return message_of(pool, names, options["messagename"], origin)
