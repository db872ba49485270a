"""The formats of values and keys: their names, their options, and how a query resolves them."""

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
    "confluent-avro": "kafkalog_spark.typed.registry.confluent:confluent_avro",
    "confluent-json": "kafkalog_spark.typed.registry.confluent:confluent_json",
    "protobuf": "kafkalog_spark.typed.protobuf.format",
    "confluent-protobuf": "kafkalog_spark.typed.registry.confluent:confluent_protobuf",
}
"""Name of a format, and its module, or an object of one, which is imported when it is asked for."""
_HINTS = {"csv": "Spark's from_csv reads the column `value`, and to_csv makes it before a write"}


@dataclass(frozen=True)
class SchemaSources:
    """Sources of the schemas that a format's options do not contain themselves, for a query's plan.

    side: "value" or "key". topics: of the read, as far as the options name them. records: key and value of every record
    of a topic of the log directory that is read, in order.
    """

    side: str
    topics: tuple[str, ...]
    records: Callable[[str], Iterable[tuple[bytes | None, bytes | None]]]


@dataclass(frozen=True)
class ResolvedFormat:
    """Format of values or keys, with the files and registered schemas that its options name. Picklable: tasks look up
    nothing that a plan can.

    options: of the format, names in small letters without the prefix `value.` or `key.`; with passwords, so in no repr.
    side: "value" or "key". mode: of bad values. descriptors: a descriptor set of Protobuf. schema_records: keys and
    values of a registry's whole topic. reader_id, reader_text: the registered schema that values are read with."""

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
        """Look up what the options name. Raises OptionError, and what reading a topic or a registry raises."""
        resolve = getattr(format_of(name), "resolve", None)  # only formats with something to look up have one
        given = cls(name, dict(options), sources.side, mode)
        return given if resolve is None else cast(ResolvedFormat, resolve(given, sources))

    def schema(self) -> pa.Schema:
        """The columns of the values, where the options say them. Raises OptionError where they do not."""
        return format_of(self.name).schema(self)

    def decoder(self, projection: pa.Schema) -> ValueDecoder:
        """A decoder of these columns, which are all that it reads of a value as far as the format lets it."""
        return format_of(self.name).decoder(self, projection)


class Format(Protocol):
    """Interface of a format. Format json has no `encoder`."""

    OPTIONS: tuple[OptionSpec, ...]  # every option of the format, those that are refused too

    def decoder(self, format: ResolvedFormat, projection: pa.Schema) -> ValueDecoder:
        """Raises OptionError for an option or a type that the format refuses."""

    def encoder(self, options: Mapping[str, str], given: pa.Schema) -> ValueEncoder:
        """options: names as in ResolvedFormat. Raises OptionError for an option or a type that the format refuses."""

    def schema(self, format: ResolvedFormat) -> pa.Schema: ...


def format_of(name: str) -> Format:
    """The format of that name. Raises OptionError for an unknown name."""
    return cast(Format, resolve_name(FORMATS[format_name("format", name)]))


def option_names(name: str) -> frozenset[str]:
    """Names of a format's options, in small letters."""
    return frozenset(spec.name.lower() for spec in format_of(name).OPTIONS)


def check_options(name: str, given: Mapping[str, str]) -> None:
    """Raise OptionError for what is no option of the format. given: by name in small letters, as it was written."""
    known = option_names(name)
    for option, written in given.items():
        if option not in known:
            raise OptionError(
                f"the format {name} has no option '{option}' ('{written}')",
                hint="docs/typed.md lists the options of each format",
            )


def format_name(option: str, text: str, names: Collection[str] = FORMATS, hints: Mapping[str, str] = _HINTS) -> str:
    """An option's text as one of `names`, in any case. Raises OptionError, with a hint for some other names."""
    if text.lower() not in names:
        hint = hints.get(text.lower())
        raise OptionError(f"option '{option}' must be one of {', '.join(names)}, got '{text}'", hint=hint)
    return text.lower()


def written_format_name(option: str, text: str) -> str:
    hints = {**_HINTS, "json": "write to_json(struct(...)) AS value"}
    return format_name(option, text, [name for name in FORMATS if name != "json"], hints)
