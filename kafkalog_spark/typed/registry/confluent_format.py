"""The common part of the formats `confluent-avro` and `confluent-protobuf`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import OptionError, SchemaRegistryError
from kafkalog_spark.options import OptionSpec
from kafkalog_spark.typed import formats
from kafkalog_spark.typed.decoder import ValueDecoder
from kafkalog_spark.typed.registry.confluent_decoder import ConfluentDecoder
from kafkalog_spark.typed.registry.schema_references import resolve_references
from kafkalog_spark.typed.registry.schema_store import (
    KIND_NAMES,
    SchemaStore,
    lookup_subject,
    store_of,
    subject_schema,
    with_schema_records,
)
from kafkalog_spark.typed.registry.schemas import RegisteredSchema


class ConfluentFormat(ABC):
    """A format whose values begin with the ID of a registered schema (framing.py).

    Values are written with the schema that they name, and read as one reader schema: that of option avroSchema, or the
    subject's. Schemas come from a registry, a file, or the topic `_schemas`.
    """

    OPTIONS: tuple[OptionSpec, ...]
    kind: str  # AVRO or PROTOBUF
    payload_module: Any  # module of the format of the bytes after the ID
    has_message_indexes = False  # whether the ID is followed by the indexes of a message in the schema's file

    def resolve(self, format: formats.ResolvedFormat, sources: formats.SchemaSources) -> formats.ResolvedFormat:
        """Return the format with its reader schema, so that all tasks of a load use the same version of the subject."""
        format = with_schema_records(format, sources)
        registered = subject_schema(format.options, store_of(format), self.kind)
        # The registry may have found the subject in another context. Then the IDs of values belong to that context.
        options = {**format.options, "subject": registered.subject or format.options["subject"]}
        return replace(format, options=options, reader_text=registered.text, reader_id=registered.id)

    def schema(self, format: formats.ResolvedFormat) -> pa.Schema:
        """Return the columns of the reader schema."""
        columns: pa.Schema = self.payload_module.columns(self.reader_schema(format, store_of(format)), format.options)
        return columns

    def decoder(self, format: formats.ResolvedFormat, projection: pa.Schema) -> ValueDecoder:
        return ConfluentDecoder(self, format, projection)

    def reader_schema(self, format: formats.ResolvedFormat, store: SchemaStore) -> Any:
        """Return the reader schema, parsed for the payload format.

        Args:
            format: The resolved format.
            store: Where its schemas come from.

        Raises:
            OptionError: If the schema is invalid.
            SchemaRegistryError: If it cannot be looked up.
        """
        if format.reader_id is None:
            return self.parse_registered(subject_schema(format.options, store, self.kind), store)
        registered = store.by_id(format.reader_id, lookup_subject(format))
        if registered is None:
            raise SchemaRegistryError(f"{store.described} does not have schema {format.reader_id} any longer")
        return self.parse_registered(registered, store)

    def parse_registered(self, registered: RegisteredSchema, store: SchemaStore) -> Any:
        """Parse a registered schema and the schemas that it refers to.

        Args:
            registered: The schema.
            store: Where the references are looked up.

        Returns:
            The schema, parsed for the payload format.

        Raises:
            OptionError: If the schema is of another kind or invalid, or a reference does not exist.
            SchemaRegistryError: If a reference cannot be looked up.
        """
        if registered.kind != self.kind:
            raise OptionError(f"schema {registered.id} is one of {registered.kind}, not of {KIND_NAMES[self.kind]}")
        references = {name: schema.text for name, schema in resolve_references(registered, store).items()}
        return self._parse_text(registered.text, references, f"schema {registered.id} of {store.described}")

    @abstractmethod
    def _parse_text(self, text: str, references: Mapping[str, str], origin: str) -> Any:
        """Parse a schema. Raises OptionError.

        Args:
            text: The schema.
            references: Texts of the schemas that it refers to, by name. Each comes after those that it needs itself.
            origin: Where the schema comes from, for errors.
        """
