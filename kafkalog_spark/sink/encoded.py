"""Values and keys that are written in a format: which columns they are made of, and the batches with them made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.option_text import GivenOptions
from kafkalog_spark.typed.decoder import ValueEncoder, encoder_of, format_of

_SIDES = ("value", "key")
_OF_TEXTS = ("string", "confluent-json")
"""Formats that are made of a column of texts, all others of a struct."""


@dataclass(frozen=True)
class EncodedColumn:
    """What is said of the column `value` or `key`. options: of the format, names in small letters without prefix."""

    name: str
    format: str
    options: tuple[tuple[str, str], ...]


def is_of_format(key: str) -> bool:
    """Whether a name in small letters is an option of a format of values or keys."""
    return key.startswith(("value.", "key."))


def encoded_columns(given: GivenOptions) -> tuple[EncodedColumn, ...]:
    """Raises OptionError for a format that there is not, and for an option that it has not."""
    result = []
    for side in _SIDES:
        prefixed = {
            key.removeprefix(f"{side}."): text for key, text in given.texts.items() if key.startswith(f"{side}.")
        }
        name = prefixed.pop("format", None)
        if name is None:
            if prefixed:
                raise OptionError(
                    f"option '{side}.{next(iter(prefixed))}' is of a format, and '{side}.format' is not given"
                )
            continue
        known = {option.lower() for option in format_of(name).OPTIONS}
        for option in prefixed:
            if option not in known and not any(option.startswith(one[:-1]) for one in known if one.endswith("*")):
                raise OptionError(f"the format {name} has no option '{option}'", hint="docs/typed.md lists them")
        result.append(EncodedColumn(side, name.lower(), tuple(sorted(prefixed.items()))))
    return tuple(result)


class Encoders:
    """Makes values and keys of batches that have the columns of `schema`. packed: the columns that become the value
    together. Raises OptionError for a type that a format does not write."""

    def __init__(self, encoded: Iterable[EncodedColumn], packed: tuple[str, ...], schema: pa.Schema) -> None:
        self._packed = packed
        self._encoders: Mapping[str, ValueEncoder] = {
            column.name: encoder_of(column.format, dict(column.options), self._given(column, schema))
            for column in encoded
            if column.name in schema.names or (column.name == "value" and packed)
        }

    def _given(self, column: EncodedColumn, schema: pa.Schema) -> pa.Schema:
        if column.name == "value" and self._packed:
            return pa.schema([schema.field(name) for name in self._packed])
        field = schema.field(column.name)
        if column.format in _OF_TEXTS:
            return pa.schema([field])
        if pa.types.is_struct(field.type):
            return pa.schema(list(field.type))
        raise OptionError(f"the column '{column.name}' is {field.type}, and {column.format} is made of a struct")

    def applied(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Raises InvalidRecord for a row that cannot be a value."""
        for batch in batches:
            for name, encoder in self._encoders.items():
                values = encoder.encode(self._rows(batch, name))
                at = batch.schema.get_field_index(name)
                field = pa.field(name, pa.binary())
                batch = batch.append_column(field, values) if at < 0 else batch.set_column(at, field, values)
            yield batch

    def _rows(self, batch: pa.RecordBatch, name: str) -> pa.StructArray:
        if name == "value" and self._packed:
            return pa.StructArray.from_arrays([batch.column(one) for one in self._packed], names=list(self._packed))
        column = batch.column(name)
        return column if pa.types.is_struct(column.type) else pa.StructArray.from_arrays([column], names=[name])
