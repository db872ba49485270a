"""The formats of values and keys: their names, their options, and their resolution for a query.

    decoder = ResolvedFormat("json", {"timezone": "UTC"}).decoder(pa.schema([("id", pa.int64())]))
    decoded = decoder.decode(batch["value"])

A format is implemented by a module of this package, or an object in a module, with the attributes of `Format`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Protocol, cast

import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.options import OptionSpec
from kafkalog_spark.typed.decoder import ValueDecoder, ValueEncoder

FORMATS = {
    "json": "kafkalog_spark.typed.json.format",
    "string": "kafkalog_spark.typed.string_format",
    "avro": "kafkalog_spark.typed.avro.format",
    "confluent-avro": "kafkalog_spark.typed.registry.confluent_avro:confluent_avro",
    "confluent-json": "kafkalog_spark.typed.registry.confluent_json:confluent_json",
    "protobuf": "kafkalog_spark.typed.protobuf.format",
    "confluent-protobuf": "kafkalog_spark.typed.registry.confluent_protobuf:confluent_protobuf",
}
"""Module or object that implements each format. It is imported on first use."""
_HINTS = {"csv": "Spark's from_csv reads the column `value`, and to_csv makes it before a write"}


@dataclass(frozen=True)
class SchemaSources:
    """Source of the schemas that the options of a format do not contain.

    Attributes:
        side: "value" or "key".
        topics: Topics of the read, if the options name them; otherwise empty.
        records: Function that returns the (key, value) of every record of a topic in the log directory, in order.
    """

    side: str
    topics: tuple[str, ...]
    records: Callable[[str], Iterable[tuple[bytes | None, bytes | None]]]


@dataclass(frozen=True)
class ResolvedFormat:
    """Format of values or keys, with the content of the files and the registered schemas that its options name.

    The driver resolves and pickles it, so that tasks read no files and send few requests to a registry.

    Attributes:
        name: Key of `FORMATS`.
        options: Options of the format by lower-case name, without the prefix `value.` or `key.`. They may contain
            passwords, so they are not part of the repr.
        side: "value" or "key".
        mode: Spark's parse mode for malformed values.
        descriptors: Content of a Protobuf descriptor set.
        schema_records: Keys and values of all records of a registry's topic.
        reader_id: ID of the registered schema that values are read with.
        reader_text: Text of the schema that values are read with.
    """

    name: str
    options: Mapping[str, str] = field(repr=False)
    side: str = "value"
    mode: str = "PERMISSIVE"
    descriptors: bytes | None = field(default=None, repr=False)
    schema_records: tuple[tuple[bytes | None, bytes | None], ...] | None = field(default=None, repr=False)
    reader_id: int | None = None
    reader_text: str | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls, name: str, options: Mapping[str, str], sources: SchemaSources, mode: str = "PERMISSIVE"
    ) -> ResolvedFormat:
        """Resolve a format: read the files, topics and registered schemas that its options name.

        Args:
            name: Key of `FORMATS`.
            options: Options of the format by lower-case name, without the prefix `value.` or `key.`.
            sources: Topics of the read, and access to their records.
            mode: Spark's parse mode for malformed values.

        Raises:
            OptionError: If an option is invalid or a file cannot be read.
            SchemaRegistryError: If a registry cannot be reached or does not have the schema.
        """
        resolve = getattr(format_of(name), "resolve", None)  # only formats with external schemas define it
        unresolved = cls(name, dict(options), sources.side, mode)
        return unresolved if resolve is None else cast(ResolvedFormat, resolve(unresolved, sources))

    def schema(self) -> pa.Schema:
        """Return the columns of the values. Raises OptionError if the options do not determine them."""
        return format_of(self.name).schema(self)

    def decoder(self, projection: pa.Schema) -> ValueDecoder:
        """Return a decoder of these columns. It skips other fields of a value as far as the format allows."""
        return format_of(self.name).decoder(self, projection)


class Format(Protocol):
    """Interface of a format. The format json has no `encoder`."""

    OPTIONS: tuple[OptionSpec, ...]  # including options that kafkalog refuses

    def decoder(self, format: ResolvedFormat, projection: pa.Schema) -> ValueDecoder:
        """Return a decoder. Raises OptionError for an option or column type that the format does not support."""

    def encoder(self, options: Mapping[str, str], row_schema: pa.Schema) -> ValueEncoder:
        """Return an encoder of rows with the columns `row_schema`.

        Args:
            options: Options of the format by lower-case name, without the prefix `value.` or `key.`.
            row_schema: Columns of the rows.

        Raises:
            OptionError: If the format does not support an option or the type of a column.
        """

    def schema(self, format: ResolvedFormat) -> pa.Schema: ...


def format_of(name: str) -> Format:
    """Return the format `name`. Raises OptionError for an unknown name."""
    return cast(Format, resolve_name(FORMATS[format_name("format", name)]))


def option_names(name: str) -> frozenset[str]:
    """Return the lower-case names of all options of the format `name`."""
    return frozenset(spec.name.lower() for spec in format_of(name).OPTIONS)


def check_options(name: str, names_as_written: Mapping[str, str]) -> None:
    """Check that the format `name` has all options that the user gave.

    Args:
        name: Key of `FORMATS`.
        names_as_written: Names of the options as the user wrote them, by lower-case name.

    Raises:
        OptionError: If the format does not have one of the options.
    """
    known = option_names(name)
    for option, written in names_as_written.items():
        if option not in known:
            raise OptionError(
                f"the format {name} has no option '{option}' ('{written}')",
                hint="docs/typed.md lists the options of each format",
            )


def format_name(option: str, text: str, names: Collection[str] = FORMATS, hints: Mapping[str, str] = _HINTS) -> str:
    """Return the name of a format that is the value of an option, in lower case.

    Args:
        option: Name of the option, for the error.
        text: Value of the option, in any case.
        names: Allowed formats.
        hints: Hint of the error by the name of a format that is not allowed.

    Raises:
        OptionError: If `text` is not one of `names`.
    """
    if text.lower() not in names:
        hint = hints.get(text.lower())
        raise OptionError(f"option '{option}' must be one of {', '.join(names)}, got '{text}'", hint=hint)
    return text.lower()


def written_format_name(option: str, text: str) -> str:
    """Like `format_name`, for an option of a write. The format json is not allowed, because it has no encoder."""
    hints = {**_HINTS, "json": "write to_json(struct(...)) AS value"}
    return format_name(option, text, [name for name in FORMATS if name != "json"], hints)
