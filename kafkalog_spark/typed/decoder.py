"""Values of a topic as typed columns: what every format gives, and the table of formats.

    decoder = decoder_of("json", {"timezone": "UTC"}, pa.schema([("id", pa.int64())]))
    decoded = decoder.decode(batch["value"])      # Decoded: a StructArray, which values were bad, and why

A format is a module of this package, named in FORMATS, with the names of `Format` below. Nothing here knows Spark or a
log: bytes in Arrow come in, columns in Arrow go out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import NamedTuple, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.errors import OptionError

FORMATS = {
    "json": "kafkalog_spark.typed.json.format",
    "string": "kafkalog_spark.typed.decoder",
    "avro": "kafkalog_spark.typed.avro.format",
    "confluent-avro": "kafkalog_spark.typed.registry.confluent_avro",
    "confluent-json": "kafkalog_spark.typed.registry.confluent_json",
    "protobuf": "kafkalog_spark.typed.protobuf.format",
    "confluent-protobuf": "kafkalog_spark.typed.registry.confluent_protobuf",
}
"""Name of a format, and its module, which is imported when it is asked for."""
_CSV = "Spark's from_csv reads the column `value`, and to_csv makes it before a write"


class Decoded(NamedTuple):
    """What became of some values.

    columns: as many rows as there were values, of the decoder's schema; a row is null where there was no value.
    bad: bool of that length, None for no bad value; a bad value's row has what could be read of it, or nulls.
    why: what is wrong with value i, for those that are bad: one line that does not repeat the value.
    """

    columns: pa.StructArray
    bad: np.ndarray | None
    why: Callable[[int], str]


class ValueDecoder(Protocol):
    """Decodes values of one format. schema: the columns that it gives, which are those that were wanted."""

    schema: pa.Schema

    def decode(self, values: pa.BinaryArray | pa.LargeBinaryArray) -> Decoded:
        """Values to columns. A bad value costs that value only; nothing is raised for what a value holds."""
        ...


class ValueEncoder(Protocol):
    """Encodes rows as values of one format."""

    def encode(self, columns: pa.StructArray) -> pa.BinaryArray:
        """Rows to values; a null row is a null value. Raises InvalidRecord for a row that cannot be one."""
        ...


@dataclass(frozen=True)
class SchemaSources:
    """Where a format finds what its options do not say themselves, when a query is planned.

    side: "value" or "key". topics: of the read, as far as the options name them. records: key and value of every record
    of a topic of the log directory that is read, in order.
    """

    side: str
    topics: tuple[str, ...]
    records: Callable[[str], Iterable[tuple[bytes | None, bytes | None]]]


class Format(Protocol):
    """What a module of a format has. options: names in small letters without the prefix `value.` or `key.`.

    Format json has no `encoder`."""

    OPTIONS: Mapping[str, str]
    """Every option of the format, as it is written, and what it means. Also those that are refused."""

    def decoder(self, options: Mapping[str, str], wanted: pa.Schema) -> ValueDecoder:
        """Raises OptionError for an option or a type that the format refuses."""
        ...

    def encoder(self, options: Mapping[str, str], given: pa.Schema) -> ValueEncoder:
        """Raises OptionError for an option or a type that the format refuses."""
        ...

    def schema(self, options: Mapping[str, str]) -> pa.Schema:
        """The columns of the values, where the options say them. Raises OptionError where they do not."""
        ...


def format_of(name: str) -> Format:
    """The module of a format. Raises OptionError for a name that there is not."""
    return cast(Format, import_module(FORMATS[format_name("format", name)]))


def format_name(option: str, text: str) -> str:
    """An option's text as a name of FORMATS, in any case. Raises OptionError."""
    return _chosen(option, text, tuple(FORMATS), None)


def written_format_name(option: str, text: str) -> str:
    """The same of a format that is written."""
    hint = "write to_json(struct(...)) AS value" if text.lower() == "json" else None
    return _chosen(option, text, tuple(name for name in FORMATS if name != "json"), hint)


def _chosen(option: str, text: str, names: tuple[str, ...], hint: str | None) -> str:
    if text.lower() not in names:
        hint = _CSV if text.lower() == "csv" else hint
        raise OptionError(f"option '{option}' must be one of {', '.join(names)}, got '{text}'", hint=hint)
    return text.lower()


def settled_options(name: str, options: Mapping[str, str], sources: SchemaSources) -> dict[str, str]:
    """Options as tasks get them: what they name by a file or in a registry is looked up once, when a query is planned.
    A format without anything to look up has no `settled`. Raises OptionError, and what reading a topic raises."""
    settled = getattr(format_of(name), "settled", None)
    return dict(options) if settled is None else dict(settled(options, sources))


def decoder_of(name: str, options: Mapping[str, str], wanted: pa.Schema) -> ValueDecoder:
    """A decoder of values of that format, for the wanted columns, which are all that it reads of a value as far as the
    format lets it."""
    return format_of(name).decoder(options, wanted)


def encoder_of(name: str, options: Mapping[str, str], given: pa.Schema) -> ValueEncoder:
    """An encoder of rows with those columns."""
    return format_of(name).encoder(options, given)


# The format `string`: values that are UTF-8 texts, taken as they are, as in Spark's cast from binary to string.

OPTIONS: Mapping[str, str] = {}


def schema(options: Mapping[str, str]) -> pa.Schema:
    """One column `value`."""
    return pa.schema([("value", pa.string())])


def decoder(options: Mapping[str, str], wanted: pa.Schema) -> ValueDecoder:
    """Raises OptionError for another number of columns than one, and for one that is no string."""
    if len(wanted) != 1 or wanted.field(0).type != pa.string():
        raise OptionError(
            "the format string gives one column of type string", hint="ask for it as `value string`, or `key string`"
        )
    return StringDecoder(wanted)


def encoder(options: Mapping[str, str], given: pa.Schema) -> ValueEncoder:
    """Raises OptionError for another number of columns than one, and for one that is no string."""
    if len(given) != 1 or given.field(0).type not in (pa.string(), pa.large_string()):
        raise OptionError(f"the format string writes one column of type string, not {', '.join(given.names) or 'none'}")
    return StringEncoder()


class StringDecoder:
    """The same bytes as a column of texts, which are not checked."""

    def __init__(self, wanted: pa.Schema) -> None:
        self.schema = wanted

    def decode(self, values: pa.BinaryArray | pa.LargeBinaryArray) -> Decoded:
        """As ValueDecoder.decode; no value is bad."""
        values = values.cast(pa.binary())
        texts = pa.Array.from_buffers(
            pa.string(), len(values), values.buffers(), null_count=values.null_count, offset=values.offset
        )
        columns = pa.StructArray.from_arrays([texts], fields=list(self.schema), mask=pc.is_null(values))
        return Decoded(columns, None, lambda i: "")


class StringEncoder:
    """The way back."""

    def encode(self, columns: pa.StructArray) -> pa.BinaryArray:
        """As ValueEncoder.encode."""
        return columns.flatten()[0].cast(pa.binary())
