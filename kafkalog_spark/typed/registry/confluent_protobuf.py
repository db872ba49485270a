"""The format `confluent-protobuf`: Protobuf values that begin with the ID of their schema and a message's indexes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.options import OptionSpec, plain_text
from kafkalog_spark.typed import formats
from kafkalog_spark.typed.decoder import ValueEncoder
from kafkalog_spark.typed.protobuf import format as protobuf_format
from kafkalog_spark.typed.protobuf import read_options
from kafkalog_spark.typed.protobuf.message_indexes import message_at
from kafkalog_spark.typed.protobuf.proto_file import ProtoFile, compile_schema
from kafkalog_spark.typed.registry.confluent_format import ConfluentFormat
from kafkalog_spark.typed.registry.framing import FIRST_MESSAGE, id_prefix
from kafkalog_spark.typed.registry.schema_store import (
    REGISTRY_OPTIONS,
    SchemaStore,
    check_write_options,
    client_of,
    subject_schema,
)
from kafkalog_spark.typed.registry.schemas import PROTOBUF

_FIRST_MESSAGE_BYTES = b"\0"  # encoding of the indexes FIRST_MESSAGE


class ConfluentProtobuf(ConfluentFormat):
    OPTIONS = (*read_options.OPTIONS, *REGISTRY_OPTIONS, OptionSpec("messageName", plain_text))
    kind = PROTOBUF
    payload_module = protobuf_format
    has_message_indexes = True

    def reader_schema(self, format: formats.ResolvedFormat, store: SchemaStore) -> Any:
        file: ProtoFile = super().reader_schema(format, store)
        name = format.options.get("messagename")
        if name is None:
            return message_at(file, FIRST_MESSAGE)
        try:
            return file.descriptor.pool.FindMessageTypeByName(name)
        except KeyError:
            if name not in file.descriptor.message_types_by_name:
                subject = format.options.get("subject")
                raise OptionError(f"the schema of subject {subject} has no message {name}") from None
            return file.descriptor.message_types_by_name[name]

    def _parse_text(self, text: str, references: Mapping[str, str], origin: str) -> ProtoFile:
        return compile_schema(text, references, origin)

    def encoder(self, options: Mapping[str, str], row_schema: pa.Schema) -> ValueEncoder:
        """Return an encoder with the latest schema of the subject, which must exist.

        Raises:
            OptionError: If the schema is invalid or does not match the columns.
            SchemaRegistryError: If the schema cannot be looked up.
        """
        from kafkalog_spark.typed.protobuf.encoder import ProtobufEncoder

        check_write_options("confluent-protobuf", options)
        if "messagename" in options:
            raise OptionError(
                "confluent-protobuf always writes the first message of the subject's file; remove option 'messageName'"
            )
        store = client_of(options)
        registered = subject_schema(options, store, PROTOBUF)
        message = message_at(self.parse_registered(registered, store), FIRST_MESSAGE)
        return ProtobufEncoder(message, row_schema, prefix=id_prefix(registered.id) + _FIRST_MESSAGE_BYTES)


confluent_protobuf = ConfluentProtobuf()
